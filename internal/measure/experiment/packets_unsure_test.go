package experiment

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/measure"
)

// Packets that are lost, and servers that take their time, change nothing in what is found.
func TestPacketsInTrouble(t *testing.T) {
	for name, trouble := range map[string]func(*world){
		"every other packet is lost":              func(w *world) { w.loss = 2 },
		"private interfaces come by time":         func(w *world) { w.configured = 40 * time.Second },
		"load balancers learn of targets by time": func(w *world) { w.learns = 30 * time.Second },
		"something can't be taken away at once": func(w *world) {
			for _, removal := range []string{"remove_target", "remove_target", "delete_service"} {
				mustInject(t, w, hcloudsim.Fault{Match: "POST /load_balancers/{id}/actions/" + removal, Code: "service_error"})
			}
		},
		"changes find the network busy": func(w *world) {
			mustInject(t, w, hcloudsim.Fault{Match: "POST /networks/{id}/actions/{action}", Code: "conflict", Times: 3})
			mustInject(t, w, hcloudsim.Fault{Match: "POST /load_balancers/{id}/actions/{action}", Code: "locked", Times: 3})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, position{})
				trouble(w)
				want := defaults(t)
				for _, o := range Run(t.Context(), w.bench(t), packetIDs()) {
					if fact, _ := measure.Of(o.Fact); o.Seen != want[o.Fact] && !fact.Quantity || o.Seen == "" {
						t.Errorf("%s: saw %q (%s), want %q", o.Fact, o.Seen, o.Why, want[o.Fact])
					}
				}
			})
		})
	}
}

func mustInject(t *testing.T, w *world, f hcloudsim.Fault) {
	t.Helper()
	if err := w.sim.Inject(f); err != nil {
		t.Fatal(err)
	}
}

// Where something else is in the way than what is looked for, there is no answer, but a reason.
func TestPacketsUnsure(t *testing.T) {
	network := []measure.FactID{measure.SourceCheck, measure.PrivateMTU, measure.RouteEffect}
	tests := map[string]struct {
		trouble func(*world)
		facts   []measure.FactID
		why     string // is part of it
	}{
		"packets in the network don't arrive": {
			trouble: func(w *world) { w.cut = true }, facts: network, why: "arrive|no packet took",
		},
		"servers never get an interface in the network": {
			trouble: func(w *world) { w.configured = time.Hour }, facts: network, why: "choose an image",
		},
		"nobody is reached through the load balancer": {
			trouble: func(w *world) { w.cut, w.deaf = true, true }, why: "after 2m0s|only 0 health checks",
			facts: []measure.FactID{
				measure.SourceIPv6, measure.ProxyProtocol, measure.ProxyInChecks, measure.UnjudgedTargets,
			},
		},
		"no target is ever unknown": {
			trouble: func(w *world) { w.way = rewriting{w.way, `"status":"unknown"`, `"status":"unhealthy"`} },
			facts:   []measure.FactID{measure.UnjudgedTargets}, why: "never unknown",
		},
		"a load balancer service is refused": {
			trouble: func(w *world) {
				mustInject(t, w, hcloudsim.Fault{Match: "POST /load_balancers/{id}/actions/add_service", Code: "resource_limit_exceeded", Times: -1})
			},
			facts: []measure.FactID{measure.SourceIPv6}, why: "resource_limit_exceeded",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, position{})
				tt.trouble(w)
				for _, o := range Run(t.Context(), w.bench(t), tt.facts) {
					if o.Seen != "" || o.Record != nil || !containsOne(o.Why, tt.why) {
						t.Errorf("%s: saw %q (%s), want a reason with %q alone", o.Fact, o.Seen, o.Why, tt.why)
					}
				}
			})
		})
	}
}

func containsOne(text, parts string) bool {
	for part := range strings.SplitSeq(parts, "|") {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}

// rewriting replaces text in every answer.
type rewriting struct {
	next     http.RoundTripper
	from, to string
}

func (r rewriting) RoundTrip(q *http.Request) (*http.Response, error) {
	answer, err := r.next.RoundTrip(q)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	body = bytes.ReplaceAll(body, []byte(r.from), []byte(r.to))
	answer.Body, answer.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return answer, nil
}

// Routes that have been seen count, also if a later one can't be added.
func TestSomeRoutesAreEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, position{})
		b := w.bench(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		b.Progress = func(s string) {
			if strings.HasSuffix(s, "3 of 4") {
				mustInject(t, w, hcloudsim.Fault{Match: "POST /networks/{id}/actions/add_route", Code: "resource_limit_exceeded"})
			}
		}
		o := Run(ctx, b, []measure.FactID{measure.RouteEffect})[0]
		if !strings.HasPrefix(o.Note, "2 routes") || o.Record == nil {
			t.Errorf("saw %q (%s%s), want that of 2 routes", o.Seen, o.Note, o.Why)
		}
	})
}
