//go:build linux

package netlab

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/hcloudsim/profile"
)

// Fields that a profile leaves out have their defaults; the error for a value that no router
// supports names its field.
func TestBehaviorOfAProfile(t *testing.T) {
	usual, err := newBehavior(profile.Network{})
	if err != nil {
		t.Fatal(err)
	}
	if usual.path != (path{mtu: 1450, vSwitchMTU: 1400}) || usual.publicMTU != 1500 ||
		usual.header != 2 || usual.gateway != (Gateway{}) {
		t.Errorf("without a profile it is %+v", usual)
	}
	given, err := newBehavior(profile.Network{
		VSwitchMTU: new(1300), AnySource: new(true), ProxyProtocol: new(1), Neighbors: new(7),
	})
	if err != nil {
		t.Fatal(err)
	}
	if given.path != (path{mtu: 1450, vSwitchMTU: 1300, anySource: true}) || given.header != 1 ||
		given.gateway != (Gateway{Neighbors: 7}) {
		t.Errorf("with a profile it is %+v", given)
	}
	for field, n := range map[string]profile.Network{
		"private_mtu 100": {PrivateMTU: new(100)}, "public_mtu 1279": {PublicMTU: new(1279)}, "vswitch_mtu 70000": {VSwitchMTU: new(70000)},
	} {
		if _, err := newBehavior(n); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: the error is %v", field, err)
		}
	}
}

// A route takes effect after the delay of its change; a later change that overtakes an older one of
// the same route remains in effect.
func TestLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := seed("10.1.0.0/24"), seed("10.2.0.0/24")
		began := time.Now()
		var reported []string
		var g *lag
		note := func() {
			var names []string
			for _, r := range g.routes() {
				names = append(names, r.Destination.String())
			}
			reported = append(reported, fmt.Sprintf("%s %v", time.Since(began), names))
		}
		g = newLag(inTurn([]time.Duration{3 * time.Second, time.Second, 0, -time.Second}), note)
		g.follow([]hcloudsim.RouteSeed{a}, nil)    // in effect after 3 s
		g.follow([]hcloudsim.RouteSeed{a, b}, nil) // after 1 s
		time.Sleep(2 * time.Second)
		synctest.Wait()
		g.follow([]hcloudsim.RouteSeed{b}, nil) // a is removed at once, before it was in effect
		note()
		// 1 s before the action ends that adds it again
		g.follow([]hcloudsim.RouteSeed{b}, []hcloudsim.PlaneBuilding{
			{RouteSeed: a, Ends: time.Now().Add(5 * time.Second)},
		})
		time.Sleep(5 * time.Second)
		synctest.Wait()
		g.follow([]hcloudsim.RouteSeed{a, b}, nil)
		time.Sleep(time.Second)
		synctest.Wait()
		want := "1s [10.2.0.0/24]; 2s [10.2.0.0/24]; 6s [10.2.0.0/24 10.1.0.0/24]"
		if got := strings.Join(reported, "; "); got != want {
			t.Errorf("in effect are\n%s, want\n%s", got, want)
		}
	})
}

func seed(destination string) hcloudsim.RouteSeed {
	return hcloudsim.RouteSeed{Destination: prefix(destination), Gateway: netip.MustParseAddr("10.0.0.2")}
}
