package project_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/hcloudsim"
)

func slow() hcloudsim.Options {
	return hcloudsim.Options{ActionTime: 200 * time.Millisecond, ActionJitter: 300 * time.Millisecond, Latency: 20 * time.Millisecond, RateLimit: hcloudsim.Unlimited}
}

func TestSweep(t *testing.T) {
	inProject(t, slow(), func(t *testing.T, w *world) {
		p := w.project(nil)
		_, err := furnish(t.Context(), p)
		noError(t, err)
		left, err := p.Leftovers(t.Context())
		noError(t, err)
		removed, err := p.Sweep(t.Context())
		noError(t, err)
		if removed != 7 || len(left) != removed {
			t.Errorf("removed %d of %v, want 7", removed, left)
		}
		w.empty()
	})
}

// trouble is what goes wrong with a request.
func trouble() map[string]hcloudsim.Fault {
	return map[string]hcloudsim.Fault{
		"not sent":         {DropBeforeApply: true},
		"reply lost":       {DropAfterApply: true},
		"reply torn":       {TornBody: true},
		"locked":           {Code: "locked", Times: 3},
		"conflict":         {Code: "conflict"},
		"rate limit":       {Code: "rate_limit_exceeded", Times: 2},
		"server error":     {Code: "server_error"},
		"error, but done":  {Code: "timeout", Applied: true},
		"no JSON":          {NotJSON: true},
		"no JSON, but 404": {NotJSON: true, Status: 404},
		"action fails":     {FailAction: "server_error"},
		"action is lost":   {LoseAction: true},
		"empty list":       {EmptyList: true},
		"half a list":      {PartialList: true},
		"another project":  {OtherProject: true},
		"held back":        {Delay: 5 * time.Second},
		"unauthorized":     {Code: "unauthorized"},
	}
}

// faulty injects a fault at the k-th request; reached says whether there were as many.
type faulty struct {
	next    http.RoundTripper
	sim     *hcloudsim.Simulator
	fault   hcloudsim.Fault
	at      int
	asked   int
	reached bool
}

func (f *faulty) RoundTrip(r *http.Request) (*http.Response, error) {
	if f.asked++; f.asked == f.at {
		f.reached = true
		if err := f.sim.Inject(f.fault); err != nil {
			return nil, err
		}
	}
	return f.next.RoundTrip(r)
}

// Whatever goes wrong, at whichever request of making and of removing: nothing remains.
func TestSweepInTrouble(t *testing.T) {
	for name, fault := range trouble() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for k, reached := 1, true; reached; k += 5 {
				inProject(t, slow(), func(t *testing.T, w *world) {
					f := &faulty{sim: w.sim, fault: fault, at: k}
					p := w.project(func(next http.RoundTripper) http.RoundTripper { f.next = next; return f })
					_, _ = furnish(t.Context(), p)
					if _, err := p.Sweep(t.Context()); err != nil {
						t.Errorf("at request %d: %v", k, err)
					}
					w.empty()
					reached = f.reached
				})
			}
		})
	}
}

// The end of a context at any request: what was under way is known, nothing new is begun, and a
// sweep removes everything.
func TestSweepAfterAnInterruption(t *testing.T) {
	for k, reached := 1, true; reached; k++ {
		inProject(t, slow(), func(t *testing.T, w *world) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			asked := 0
			p := w.project(func(next http.RoundTripper) http.RoundTripper {
				return way(func(r *http.Request) (*http.Response, error) {
					if asked++; asked == k {
						cancel()
					}
					return next.RoundTrip(r)
				})
			})
			_, err := furnish(ctx, p)
			reached = errors.Is(err, context.Canceled)
			if reached && asked != k {
				t.Errorf("%d requests were sent, the context had ended at %d", asked, k)
			}
			_, err = p.Sweep(t.Context())
			noError(t, err)
			w.empty()
		})
	}
}

// The process is killed at any request, which the API may carry out or not: another one cleans.
func TestCleanAfterAKill(t *testing.T) {
	for _, applied := range []bool{false, true} {
		for k, reached := 1, true; reached; k++ {
			inProject(t, slow(), func(t *testing.T, w *world) {
				asked := 0
				killed := w.project(func(next http.RoundTripper) http.RoundTripper {
					return way(func(r *http.Request) (*http.Response, error) {
						if asked++; asked < k {
							return next.RoundTrip(r)
						}
						if asked == k && applied {
							_, _ = next.RoundTrip(r)
						}
						return nil, errors.New("killed")
					})
				})
				_, _ = furnish(t.Context(), killed)
				reached = asked >= k
				_, err := w.project(nil).Sweep(t.Context())
				noError(t, err)
				w.empty()
			})
		}
	}
}

// What the API does only after it lost the reply doesn't escape.
func TestSweepWaitsForWhatComesLate(t *testing.T) {
	inProject(t, slow(), func(t *testing.T, w *world) {
		p := w.project(func(next http.RoundTripper) http.RoundTripper {
			return way(func(r *http.Request) (*http.Response, error) {
				if r.Method != http.MethodPost {
					return next.RoundTrip(r)
				}
				late := r.Clone(context.WithoutCancel(r.Context()))
				time.AfterFunc(8*time.Second, func() { _, _ = next.RoundTrip(late) })
				return nil, errors.New("connection reset")
			})
		})
		if _, err := p.Key(t.Context()); err == nil {
			t.Error("no error")
		}
		_, err := p.Sweep(t.Context())
		noError(t, err)
		w.settle()
		w.empty()
	})
}

// Something that can't be removed, and what can't be known, are named after ten minutes.
func TestSweepGivesUp(t *testing.T) {
	inProject(t, slow(), func(t *testing.T, w *world) {
		p := w.project(nil)
		made, err := furnish(t.Context(), p)
		noError(t, err)
		w.direct("POST", fmt.Sprintf("/networks/%d/actions/change_protection", made.net.ID), `{"delete": true}`)
		w.settle()
		_, err = p.Sweep(t.Context())
		if !hcloud.IsError(err, hcloud.ErrorCodeProtected) || !strings.Contains(err.Error(), "network underlay-measure-net (ID ") {
			t.Errorf("%v", err)
		}
		noError(t, w.sim.Inject(hcloudsim.Fault{Times: -1, DropBeforeApply: true}))
		began := time.Now()
		if _, err = p.Sweep(t.Context()); err == nil || strings.Contains(err.Error(), token) || time.Since(began) > 11*time.Minute {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}
