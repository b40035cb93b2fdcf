package project_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/measure/project"
	"github.com/underlay-ccm/underlay/internal/secret"
)

func slow() hcloudsim.Options {
	return hcloudsim.Options{ActionTime: 200 * time.Millisecond, ActionJitter: 300 * time.Millisecond, Latency: 20 * time.Millisecond, RateLimit: hcloudsim.Unlimited}
}

func TestSweep(t *testing.T) {
	inProject(t, slow(), func(t *testing.T, w *world) {
		p := w.project(nil)
		_, err := furnish(t.Context(), p)
		noError(t, err)
		removed, err := p.Sweep(t.Context())
		noError(t, err)
		want := project.Removed{SSHKeys: 1}
		want.Servers, want.Networks, want.LoadBalancers, want.FloatingIPs, want.PrimaryIPs = 2, 1, 1, 1, 1
		if removed != want {
			t.Errorf("removed %+v, want %+v", removed, want)
		}
		w.empty()

		// Nothing is made any more.
		_, _, err = p.Client().Network.Create(t.Context(), hcloud.NetworkCreateOpts{Name: p.Name("late"), Labels: p.Labels(), IPRange: ipNet("10.0.0.0/8")})
		if !errors.Is(err, project.ErrRefused) {
			t.Errorf("after the sweep a network is made: %v", err)
		}
		w.empty()
	})
}

// A run that was killed has told nobody what it made.
func TestSweepOfAnEarlierRun(t *testing.T) {
	inProject(t, slow(), func(t *testing.T, w *world) {
		_, err := furnish(t.Context(), w.project(nil))
		noError(t, err)
		cleaner, err := project.New(project.Options{Token: secret.New(token), Endpoint: endpoint, Transport: w.sim.Transport(), Run: run})
		noError(t, err)
		_, err = cleaner.Sweep(t.Context())
		noError(t, err)
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
			step := slowdown
			if testing.Short() {
				step = 5
			}
			for k, reached := 1, true; reached; k += step {
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

// A list that lies doesn't tell one who knows nothing else that nothing is left.
func TestCleanInSpiteOfAListThatLies(t *testing.T) {
	for _, fault := range []hcloudsim.Fault{{EmptyList: true}, {PartialList: true}, {OtherProject: true}} {
		for _, collection := range []string{"servers", "networks", "load_balancers", "floating_ips", "primary_ips", "ssh_keys"} {
			inProject(t, slow(), func(t *testing.T, w *world) {
				_, err := furnish(t.Context(), w.project(nil))
				noError(t, err)
				// The others are gone already.
				for _, other := range []string{"load_balancers", "servers", "floating_ips", "primary_ips", "networks", "ssh_keys"} {
					if other == collection {
						break
					}
					w.deleteOurs(other)
				}
				fault.Match = "GET /" + collection
				noError(t, w.sim.Inject(fault))
				_, err = w.project(nil).Sweep(t.Context())
				noError(t, err)
				w.empty()
			})
		}
	}
}

// deleteOurs removes the run's things of a kind, around the guard.
func (w *world) deleteOurs(collection string) {
	w.t.Helper()
	_, text := w.direct("GET", "/"+collection+"?per_page=50&label_selector="+project.Label+"%3D"+run, "")
	var reply map[string]json.RawMessage
	noError(w.t, json.Unmarshal(text, &reply))
	var rows []struct {
		ID   int64
		Name string
	}
	noError(w.t, json.Unmarshal(reply[collection], &rows))
	for _, row := range rows {
		if strings.HasPrefix(row.Name, "underlay-measure-"+run) {
			w.direct("DELETE", fmt.Sprintf("/%s/%d", collection, row.ID), "")
		}
	}
	w.settle()
}

// A sweep that begins while something is being made waits for it.
func TestSweepWaitsForWhatIsBeingMade(t *testing.T) {
	inProject(t, hcloudsim.Options{}, func(t *testing.T, w *world) {
		p := w.project(nil)
		noError(t, w.sim.Inject(hcloudsim.Fault{Match: "POST /networks", Delay: 20 * time.Second}))
		made := make(chan error)
		go func() {
			_, _, err := p.Client().Network.Create(t.Context(), hcloud.NetworkCreateOpts{
				Name: p.Name("net"), Labels: p.Labels(), IPRange: ipNet("10.0.0.0/8"),
			})
			made <- err
		}()
		time.Sleep(time.Second)
		removed, err := p.Sweep(t.Context())
		noError(t, err)
		w.empty()
		if err := <-made; err != nil || removed.Networks != 1 {
			t.Errorf("made: %v, removed: %+v", err, removed)
		}
		w.empty()
	})
}

// What somebody else has put into the run's things stays, and is named.
func TestSweepSparesWhatOthersUse(t *testing.T) {
	inProject(t, slow(), func(t *testing.T, w *world) {
		p := w.project(nil)
		made, err := furnish(t.Context(), p)
		noError(t, err)
		attached := w.make("/servers", fmt.Sprintf(`{"name": "prod-3", "server_type": "cx23", "image": "debian-12", "location": "nbg1", "networks": [%d]}`, made.net.ID))
		w.settle()
		w.before = w.photo() // what is removed is missed by nobody: only theirs is compared
		_, err = p.Sweep(t.Context())
		var left *project.LeftBehind
		if !errors.As(err, &left) || len(left.Things) != 1 || left.Things[0].ID != made.net.ID {
			t.Fatalf("left behind: %v", err)
		}
		for _, part := range []string{"network", p.Name("net"), fmt.Sprint(attached), "underlayctl measure clean --run " + run} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q isn't in the error: %v", part, err)
			}
		}
		w.untouched()

		// Once it is gone, so is the network.
		w.direct("DELETE", fmt.Sprintf("/servers/%d", attached), "")
		w.settle()
		_, err = p.Sweep(t.Context())
		noError(t, err)
	})
}

// What has lost its label or its name is somebody else's.
func TestSweepSparesWhatWasTakenOver(t *testing.T) {
	for _, change := range []string{`{"labels": {}}`, `{"name": "prod-7"}`, `{"labels": {"underlay.dev/measure": "other"}}`} {
		inProject(t, slow(), func(t *testing.T, w *world) {
			p := w.project(nil)
			made, err := furnish(t.Context(), p)
			noError(t, err)
			path := fmt.Sprintf("/servers/%d", made.servers[1].ID)
			w.direct("PUT", path, change)
			_, err = p.Sweep(t.Context())
			var left *project.LeftBehind
			if !errors.As(err, &left) || len(left.Things) != 1 || left.Things[0].ID != made.net.ID {
				t.Errorf("%s: left behind: %v", change, err) // the network, which it is in
			}
			// It is told of, as is what bore the label from the beginning.
			var told []string
			for _, other := range p.Spared() {
				told = append(told, other.String())
			}
			said := strings.Join(told, "\n")
			if len(told) != 2 || !strings.Contains(said, "server prod-2 ") || !strings.Contains(said, fmt.Sprintf("(ID %d): ", made.servers[1].ID)) || !strings.Contains(said, "remove it") {
				t.Errorf("%s: told is\n%s", change, said)
			}
			if status, _ := w.direct("GET", path, ""); status != http.StatusOK {
				t.Errorf("%s: the server is gone", change)
			}
			w.direct("DELETE", path, "")
			w.settle()
			if _, err = p.Sweep(t.Context()); err != nil || len(p.Spared()) != 1 {
				t.Errorf("%s: once it is gone: %v, %v", change, err, p.Spared())
			}
		})
	}
}

func TestSweepGivesUp(t *testing.T) {
	inProject(t, slow(), func(t *testing.T, w *world) {
		p := w.project(nil)
		made, err := furnish(t.Context(), p)
		noError(t, err)
		w.direct("POST", fmt.Sprintf("/networks/%d/actions/change_protection", made.net.ID), `{"delete": true}`)
		w.settle()
		began := time.Now()
		_, err = p.Sweep(t.Context())
		if !hcloud.IsError(err, hcloud.ErrorCodeProtected) || time.Since(began) > 2*time.Minute {
			t.Errorf("after %s: %v", time.Since(began), err)
		}

		noError(t, w.sim.Inject(hcloudsim.Fault{Times: -1, DropBeforeApply: true}))
		began = time.Now()
		_, err = p.Sweep(t.Context())
		var left *project.LeftBehind
		if !errors.As(err, &left) || left.Err == nil || len(left.Things) != 1 || time.Since(began) > 11*time.Minute {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		if strings.Contains(err.Error(), token) {
			t.Errorf("the token is in %v", err)
		}
		w.sim.ClearFaults()

		w.sim.SetToken("another")
		began = time.Now()
		_, err = p.Sweep(t.Context())
		if !hcloud.IsError(err, hcloud.ErrorCodeUnauthorized) || time.Since(began) > 2*time.Minute {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}
