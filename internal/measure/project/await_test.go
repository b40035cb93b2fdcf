package project_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/measure/project"
	"github.com/underlay-ccm/underlay/internal/secret"
)

// aNetwork makes one, in which routes can lead to addresses.
func aNetwork(t *testing.T, p *project.Project) *hcloud.Network {
	t.Helper()
	n, _, err := p.Client().Network.Create(t.Context(), hcloud.NetworkCreateOpts{
		Name: p.Name("net"), Labels: p.Labels(), IPRange: ipNet("10.0.0.0/8"),
		Subnets: []hcloud.NetworkSubnet{{Type: hcloud.NetworkSubnetTypeCloud, IPRange: ipNet("10.0.0.0/24"), NetworkZone: hcloud.NetworkZoneEUCentral}},
	})
	noError(t, err)
	return n
}

func addRoute(ctx context.Context, p *project.Project, n *hcloud.Network, i int) (*hcloud.Action, error) {
	a, _, err := p.Client().Network.AddRoute(ctx, n, hcloud.NetworkAddRouteOpts{Route: hcloud.NetworkRoute{
		Destination: ipNet(fmt.Sprintf("10.100.%d.0/24", i)), Gateway: ipNet("10.0.0.2/32").IP,
	}})
	return a, err
}

// How long an action took is known to a twentieth, or to half of the shortest time between looks and of a request.
func TestAwaitTellsHowLongItTook(t *testing.T) {
	for _, real := range []time.Duration{0, 40 * time.Millisecond, 300 * time.Millisecond, 1730 * time.Millisecond, 9 * time.Second, 43 * time.Second} {
		inProject(t, hcloudsim.Options{ActionTime: real, Latency: 30 * time.Millisecond}, func(t *testing.T, w *world) {
			p := w.project(nil)
			n := aNetwork(t, p)
			w.sim.ResetRequests()
			a, err := addRoute(t.Context(), p, n, 1)
			noError(t, err)
			time.Sleep(min(real/2, time.Second)) // the reply counts, not when somebody waits
			took, exact, err := p.Await(t.Context(), a)
			noError(t, err)
			if !exact {
				t.Errorf("an action of %s is not known exactly", real)
			}
			// Half of the latency is the reply's, which counts from its arrival.
			if off := (took - real + 15*time.Millisecond).Abs(); off > max(50*time.Millisecond, real/15) {
				t.Errorf("an action of %s took %s", real, took)
			}
			if asked := len(w.sim.Requests()); asked > 70 {
				t.Errorf("an action of %s took %d requests", real, asked)
			}
			if got := p.Took()["add_route"]; len(got) != 1 || got[0] != took {
				t.Errorf("noted is %v", p.Took())
			}
			if again, _, err := p.Await(t.Context(), a); err != nil || len(p.Took()["add_route"]) != 1 {
				t.Errorf("awaited again: %s, %v, %v", again, err, p.Took())
			}
		})
	}
}

// spend uses up the budget until so much of it is left, as others do.
func (w *world) spend(t *testing.T, p *project.Project, left int) {
	t.Helper()
	for {
		_, resp, err := p.Client().Location.List(t.Context(), hcloud.LocationListOpts{})
		noError(t, err)
		if resp.Meta.Ratelimit.Remaining <= left+1 {
			return
		}
		for range resp.Meta.Ratelimit.Remaining - left - 1 {
			w.direct("GET", "/locations", "")
		}
	}
}

// A look that is held back shows what is when it is sent; and what is known too late isn't known.
func TestAwaitWhileRequestsAreHeldBack(t *testing.T) {
	for _, row := range []struct {
		limit  int // of requests in an hour: held back they come at half of that
		real   time.Duration
		exact  bool
		within time.Duration
	}{
		{3600, time.Second, false, 2 * time.Second},
		{3600, 21300 * time.Millisecond, true, 1100 * time.Millisecond},
		{3600, 21900 * time.Millisecond, true, 1100 * time.Millisecond},
		{3600, 22500 * time.Millisecond, true, 1100 * time.Millisecond},
		{3600, 23100 * time.Millisecond, true, 1100 * time.Millisecond},
		{360, time.Second, false, 20 * time.Second},
		{360, 30 * time.Second, false, 20 * time.Second},
	} {
		inProject(t, hcloudsim.Options{ActionTime: row.real, RateLimit: row.limit, Latency: 50 * time.Millisecond}, func(t *testing.T, w *world) {
			time.Sleep(time.Hour) // the budget is full
			p := w.project(nil)
			n := aNetwork(t, p)
			w.spend(t, p, row.limit/2-5)
			a, err := addRoute(t.Context(), p, n, 1)
			noError(t, err)
			took, exact, err := p.Await(t.Context(), a)
			noError(t, err)
			if exact != row.exact || len(p.Took()["add_route"]) == 1 != row.exact {
				t.Errorf("%d an hour: an action of %s took %s, exact: %t; noted is %v", row.limit, row.real, took, exact, p.Took())
			}
			if off := (took - row.real).Abs(); off > row.within {
				t.Errorf("%d an hour: an action of %s took %s", row.limit, row.real, took)
			}
		})
	}
}

// While looks fail an action may end at any time.
func TestAwaitCountsNoTimeThatWasNotSeen(t *testing.T) {
	for _, fault := range []hcloudsim.Fault{{DropBeforeApply: true, Times: 4}, {Delay: 20 * time.Second}} {
		inProject(t, hcloudsim.Options{ActionTime: 2 * time.Second}, func(t *testing.T, w *world) {
			p := w.project(nil)
			a, err := addRoute(t.Context(), p, aNetwork(t, p), 1)
			noError(t, err)
			fault.Match = "GET /actions/{id}"
			noError(t, w.sim.Inject(fault))
			if took, exact, err := p.Await(t.Context(), a); err != nil || exact || len(p.Took()) != 0 {
				t.Errorf("%+v: took %s, exact: %t, %v; noted is %v", fault, took, exact, err, p.Took())
			}
		})
	}
}

func TestAwaitLooksAgain(t *testing.T) {
	for name, row := range map[string]struct {
		fault hcloudsim.Fault
		want  func(error) bool
	}{
		"dropped":     {hcloudsim.Fault{DropBeforeApply: true, Times: 6}, nil},
		"torn":        {hcloudsim.Fault{TornBody: true, Times: 3}, nil},
		"rate limit":  {hcloudsim.Fault{Code: "rate_limit_exceeded", Times: 3}, nil},
		"broken":      {hcloudsim.Fault{NotJSON: true, Times: 3}, nil},
		"for ever":    {hcloudsim.Fault{DropBeforeApply: true, Times: -1}, func(err error) bool { return err != nil }},
		"not allowed": {hcloudsim.Fault{Code: "unauthorized", Times: -1}, func(err error) bool { return hcloud.IsError(err, hcloud.ErrorCodeUnauthorized) }},
	} {
		inProject(t, hcloudsim.Options{ActionTime: 2 * time.Second}, func(t *testing.T, w *world) {
			p := w.project(nil)
			a, err := addRoute(t.Context(), p, aNetwork(t, p), 1)
			noError(t, err)
			row.fault.Match = "GET /actions/{id}"
			noError(t, w.sim.Inject(row.fault))
			_, _, err = p.Await(t.Context(), a)
			if row.want == nil && err != nil || row.want != nil && !row.want(err) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

func TestAwaitFails(t *testing.T) {
	inProject(t, hcloudsim.Options{ActionTime: 2 * time.Second}, func(t *testing.T, w *world) {
		p := w.project(nil)
		n := aNetwork(t, p)
		noError(t, w.sim.Inject(hcloudsim.Fault{Match: "POST /networks/{id}/actions/add_route", FailAction: "server_error"}))
		a, err := addRoute(t.Context(), p, n, 1)
		noError(t, err)
		_, _, err = p.Await(t.Context(), a)
		var failed hcloud.ActionError
		if !errors.As(err, &failed) || failed.Code != "server_error" || !strings.Contains(err.Error(), "add_route") {
			t.Errorf("a failed action: %v", err)
		}
		noError(t, w.sim.Inject(hcloudsim.Fault{Match: "POST /networks/{id}/actions/add_route", LoseAction: true}))
		a, err = addRoute(t.Context(), p, n, 2)
		noError(t, err)
		if _, _, err = p.Await(t.Context(), a); err == nil {
			t.Error("an action that nobody knows has ended")
		}
		a, err = addRoute(t.Context(), p, n, 3)
		for hcloud.IsError(err, hcloud.ErrorCodeConflict) {
			time.Sleep(time.Second)
			a, err = addRoute(t.Context(), p, n, 3)
		}
		noError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err = p.Await(ctx, a); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after the end of its context: %v", err)
		}
		if len(p.Took()) != 0 {
			t.Errorf("noted is %v", p.Took())
		}
		if took, _, err := p.Await(t.Context(), nil); took != 0 || err != nil {
			t.Errorf("no action took %s, %v", took, err)
		}
	})
}

func TestLatencies(t *testing.T) {
	inProject(t, hcloudsim.Options{Latency: 80 * time.Millisecond, RateLimit: 60}, func(t *testing.T, w *world) {
		time.Sleep(time.Hour)
		p := w.project(nil)
		for range 40 { // half of them are held back
			_, _, err := p.Client().Location.List(t.Context(), hcloud.LocationListOpts{})
			noError(t, err)
		}
		noError(t, w.sim.Inject(hcloudsim.Fault{Code: "server_error"}))
		if _, _, err := p.Client().Location.List(t.Context(), hcloud.LocationListOpts{}); err == nil {
			t.Error("no error")
		}
		all := p.Latencies()
		if len(all) != 40 {
			t.Errorf("%d are noted, want those of 40 requests that were answered", len(all))
		}
		for _, took := range all {
			if took != 80*time.Millisecond {
				t.Errorf("a request took %s", took)
			}
		}
	})
}

// Half of the budget is left to others, and a sweep may use it all.
func TestPace(t *testing.T) {
	inProject(t, hcloudsim.Options{RateLimit: 360}, func(t *testing.T, w *world) {
		time.Sleep(time.Hour) // the budget is full
		p := w.project(nil)
		began, first := time.Now(), 0
		for range 240 {
			_, resp, err := p.Client().Location.List(t.Context(), hcloud.LocationListOpts{})
			noError(t, err)
			if left := resp.Meta.Ratelimit.Remaining; left < 178 {
				t.Fatalf("%d requests are left of 360", left)
			}
			if time.Since(began) == 0 {
				first++
			}
		}
		if first < 175 {
			t.Errorf("%d requests were sent at once, want half of the budget", first)
		}
		if took := time.Since(began); took < 590*time.Second || took > 700*time.Second { // 60, of which one comes back in 10 s
			t.Errorf("240 requests took %s", took)
		}

		// Others need more than half of it: of what comes back, half is theirs.
		for range 100 {
			w.direct("GET", "/locations", "")
		}
		_, _, err := p.Client().Location.List(t.Context(), hcloud.LocationListOpts{})
		noError(t, err)
		began = time.Now()
		for range 10 {
			_, _, err := p.Client().Location.List(t.Context(), hcloud.LocationListOpts{})
			noError(t, err)
		}
		if took := time.Since(began); took < 180*time.Second || took > 200*time.Second {
			t.Errorf("10 requests took %s", took)
		}

		// A sweep may use more of it.
		swept := w.project(nil)
		aNetwork(t, swept)
		began = time.Now()
		_, err = swept.Sweep(t.Context())
		noError(t, err)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("the sweep took %s", took)
		}

		// Somebody else uses up everything.
		aNetwork(t, p)
		for {
			if status, _ := w.direct("GET", "/locations", ""); status == http.StatusTooManyRequests {
				break
			}
		}
		began = time.Now()
		_, err = p.Sweep(t.Context())
		noError(t, err)
		if took := time.Since(began); took > 9*time.Minute {
			t.Errorf("the sweep took %s", took)
		}
	})
}

// A request that waits for its turn ends with its context. It isn't waited for if it can't be sent
// by then. Each says why, and so does what goes on.
func TestPaceEndsWithTheContext(t *testing.T) {
	inProject(t, hcloudsim.Options{RateLimit: 60}, func(t *testing.T, w *world) {
		var said []string
		p, err := project.New(project.Options{
			Token: secret.New(token), Endpoint: endpoint, Transport: w.sim.Transport(), Run: run, Progress: func(what string) { said = append(said, what) },
		})
		noError(t, err)
		for status := 0; status != http.StatusTooManyRequests; {
			status, _ = w.direct("GET", "/locations", "")
		}
		list := func(ctx context.Context) error {
			_, _, err := p.Client().Location.List(ctx, hcloud.LocationListOpts{})
			return err
		}
		if err := list(t.Context()); !hcloud.IsError(err, hcloud.ErrorCodeRateLimitExceeded) {
			t.Errorf("nothing is left: %v", err)
		}
		const why = "rate limit: 0 of 60 requests are left, and half is for others: wait, or stop the other program"
		limited, done := context.WithTimeout(t.Context(), 20*time.Second)
		defer done()
		began := time.Now()
		if err := list(limited); err == nil || !strings.Contains(err.Error(), why) || time.Since(began) != 0 || said != nil {
			t.Errorf("after %s: %v, said was %q", time.Since(began), err, said)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Second, cancel)
		if err := list(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), why) || time.Since(began) != 20*time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		if !slices.Equal(said, []string{why}) {
			t.Errorf("said was %q", said)
		}
	})
}
