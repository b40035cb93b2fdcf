package hcloudsim_test

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/underlay-ccm/underlay/hcloudsim"
)

// diary is a listener that records its calls.
type diary struct {
	mu    sync.Mutex
	lines []string
}

// read returns and empties the diary.
func (d *diary) read() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	lines := d.lines
	d.lines = nil
	return strings.Join(lines, "\n")
}

func (d *diary) note(p hcloudsim.DataPlane) {
	var parts []string
	for _, n := range p.Networks {
		var members []string
		for _, m := range n.Members {
			members = append(members, m.IP.String())
		}
		parts = append(parts, fmt.Sprintf("%d routes, members %v", len(n.Routes), members))
	}
	for _, lb := range p.LoadBalancers {
		var targets []string
		for _, t := range lb.Targets {
			targets = append(targets, t.Address.String())
		}
		parts = append(parts, fmt.Sprintf("balancer to %v", targets))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, strings.Join(parts, "; "))
}

// The listener is called for each change when it takes effect, not when it is requested, and also
// without any reads.
func TestOnChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		sim := newSim(hcloudsim.Options{ActionTime: actionTime, OnChange: d.note})
		c, n := client(sim), seedNetwork(t, sim)
		a := seedServer(t, sim, hcloudsim.ServerSeed{Name: "a", Network: n.ID, Labels: map[string]string{"x": ""}})
		expect := func(want ...string) {
			t.Helper()
			synctest.Wait()
			if got := d.read(); got != strings.Join(want, "\n") {
				t.Errorf("told:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
			}
		}
		expect("0 routes, members []", "0 routes, members [10.0.0.2]")

		noError(t, addRoute(t, c, n, "10.244.0.0/24", "10.0.0.2"))
		_, err := c.Server.All(t.Context())
		noError(t, err)
		expect()
		time.Sleep(actionTime)
		expect("1 routes, members [10.0.0.2]")

		_, _, err = c.LoadBalancer.Create(t.Context(), hcloud.LoadBalancerCreateOpts{
			Name: "web", LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, NetworkZone: "eu-central", Network: n,
			Targets: []hcloud.LoadBalancerCreateOptsTarget{{
				Type: hcloud.LoadBalancerTargetTypeLabelSelector, UsePrivateIP: hcloud.Ptr(true),
				LabelSelector: hcloud.LoadBalancerCreateOptsTargetLabelSelector{Selector: "x"},
			}},
		})
		noError(t, err)
		time.Sleep(actionTime)
		expect("1 routes, members [10.0.0.2]; balancer to [invalid IP]", "1 routes, members [10.0.0.2 10.0.0.3]; balancer to [10.0.0.2]")

		_, _, err = c.Server.Update(t.Context(), a, hcloud.ServerUpdateOpts{Name: "b"})
		noError(t, err)
		expect() // nothing that affects traffic
		noError(t, sim.DeleteServer(a.ID))
		expect("1 routes, members [10.0.0.3]; balancer to []")
	})
}

// A listener may use the simulator: it is called again for its own changes.
func TestOnChangeMayChange(t *testing.T) {
	var sim *hcloudsim.Simulator
	var seen []int
	sim = newSim(hcloudsim.Options{OnChange: func(p hcloudsim.DataPlane) {
		routes := len(p.Networks[0].Routes)
		seen = append(seen, routes)
		if routes < 3 {
			err := sim.AddRoute(p.Networks[0].ID, hcloudsim.RouteSeed{
				Destination: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(routes), 0}), 24), Gateway: netip.MustParseAddr("10.0.0.2"),
			})
			noError(t, err)
		}
	}})
	seedNetwork(t, sim)
	if fmt.Sprint(seen) != "[0 1 2 3]" {
		t.Errorf("told of %v routes", seen)
	}
	if got := sim.DataPlane().Networks[0]; len(got.Routes) != 3 || got.Gateway != netip.MustParseAddr("10.0.0.1") {
		t.Errorf("data plane has %+v", got)
	}
}

// With Foretell, a route shows in Building from the start of its action; one whose action fails
// never does.
func TestForetell(t *testing.T) {
	for _, atOnce := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var told []string
			sim := newSim(hcloudsim.Options{ActionTime: actionTime, EffectsAtOnce: atOnce, Foretell: true})
			c, n := client(sim), seedNetwork(t, sim)
			look := func() {
				plane := sim.DataPlane().Networks[0]
				said := fmt.Sprintf("%d routes", len(plane.Routes))
				for _, b := range plane.Building {
					said += fmt.Sprintf(", %s in %s", b.Destination, time.Until(b.Ends))
				}
				told = append(told, said)
			}
			noError(t, addRoute(t, c, n, "10.244.0.0/24", "10.0.0.2"))
			look()
			time.Sleep(actionTime)
			look()
			noError(t, sim.Inject(hcloudsim.Fault{Match: "POST /networks/{id}/actions/add_route", FailAction: "action_failed"}))
			noError(t, addRoute(t, c, n, "10.244.1.0/24", "10.0.0.2"))
			look()
			at := 0
			if atOnce {
				at = 1
			}
			want := fmt.Sprintf("%d routes, 10.244.0.0/24 in %s; 1 routes; 1 routes", at, actionTime)
			if got := strings.Join(told, "; "); got != want {
				t.Errorf("effects at once %v: told of %s, want %s", atOnce, got, want)
			}
		})
	}
}
