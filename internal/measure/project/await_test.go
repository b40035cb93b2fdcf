package project_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/measure/project"
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
