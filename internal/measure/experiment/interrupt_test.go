package experiment

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/measure"
	"github.com/underlay-ccm/underlay/internal/measure/project"
)

// errKilled is what every request of a process gets that is no more.
var errKilled = errors.New("the process was killed")

// road is the way to the API of a run that ends at one of its requests.
type road struct {
	next http.RoundTripper
	// at is the number of the request at which the run ends, from 1; 0: none.
	at int
	// end ends the run, before the request goes on.
	end func()
	// dead: that request, and what comes after it, isn't sent; with late, that one is, and its
	// reply is lost.
	dead, late bool

	mu       sync.Mutex
	requests []string
}

func (r *road) RoundTrip(q *http.Request) (*http.Response, error) {
	r.mu.Lock()
	r.requests = append(r.requests, q.Method+" "+q.URL.Path)
	n := len(r.requests)
	r.mu.Unlock()
	if n == r.at {
		r.end()
	}
	if r.at == 0 || n < r.at || !r.dead {
		return r.next.RoundTrip(q)
	}
	if n == r.at && r.late {
		if answer, err := r.next.RoundTrip(q.WithContext(context.WithoutCancel(q.Context()))); err == nil {
			answer.Body.Close()
		}
	}
	return nil, errKilled
}

// neighbors fills a project with what isn't the run's.
func neighbors(t testing.TB, sim *hcloudsim.Simulator) {
	t.Helper()
	n, err := sim.CreateNetwork(hcloudsim.NetworkSeed{Name: "theirs", IPRange: numbered(200).Range})
	if err != nil {
		t.Fatal(err)
	}
	for name, labels := range map[string]map[string]string{
		"theirs": nil, "underlay-measure-by-name": nil, "by-label": {project.Label: ""},
	} {
		_, err := sim.CreateServer(hcloudsim.ServerSeed{Name: name, Labels: labels, Network: n.ID})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// ending is how a run ends at one of its requests.
type ending struct {
	name       string
	dead, late bool
}

// endings are: Ctrl-C, and the death of the process before the request was carried out, and after.
func endings() []ending {
	return []ending{
		{name: "interrupted"}, {name: "killed before", dead: true}, {name: "killed after", dead: true, late: true},
	}
}

// TestNothingIsLeftWhereverARunEnds ends a run at each of its requests, in each way, and looks at
// the project after it was swept: by the same process, or, if that was killed, by another.
func TestNothingIsLeftWhereverARunEnds(t *testing.T) {
	runs := []struct {
		name  string
		facts []measure.FactID
		// reads: a run ends at each request that changes something, and at one of so many that read.
		reads int
	}{
		{"by the API", apiFacts(), 1},
		{"by packets", packetIDs(), 20},
	}
	for _, run := range runs {
		whole := endedRun(t, run.facts, 0, ending{name: "at its end"})
		for _, how := range endings() {
			t.Run(run.name+"/"+how.name, func(t *testing.T) {
				t.Parallel()
				for at := 1; at <= len(whole) && !t.Failed(); at++ {
					every := slowdown / 2
					if strings.HasPrefix(whole[at-1], http.MethodGet) {
						every = slowdown * run.reads
					}
					if at%max(every, 1) == 0 {
						endedRun(t, run.facts, at, how)
					}
				}
			})
		}
	}
}

// endedRun ends a run at a request, 0 being none, sweeps, and fails the test if the project isn't as
// it was before. It returns what was requested until then.
func endedRun(t *testing.T, facts []measure.FactID, at int, how ending) (requests []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		// The world's own requests are counted by the budget, too.
		w := newWorld(t, position{options: like(func(o *hcloudsim.Options) { o.RateLimit = 1_000_000 })})
		neighbors(t, w.sim)
		before := kept(t, w.sim)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r := &road{next: w.sim.Transport(), at: at, end: cancel, dead: how.dead, late: how.late}
		p := projectOver(t, r)
		b := benchOf(p)
		b.Programs = w
		all := Run(ctx, b, facts)
		requests = slices.Clone(r.requests)
		for _, o := range all {
			if at == 0 && (o.Seen == "" || o.Why != "") {
				t.Errorf("not found: %s", describe(o))
			}
		}
		if how.dead {
			p = projectOver(t, w.sim.Transport())
		}
		_, err := p.Sweep(t.Context())
		if after := kept(t, w.sim); err != nil || after != before {
			t.Errorf("%s at request %d, %s: %v\nleft:\n%s\nbefore:\n%s",
				how.name, at, r.requests[max(at, 1)-1], err, after, before)
		}
	})
	return requests
}
