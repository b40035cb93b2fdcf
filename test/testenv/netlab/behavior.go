//go:build linux

package netlab

import (
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/test/testenv/balancer"
	"github.com/underlay-ccm/underlay/test/testenv/measured"
)

// behavior is a profile.Network in the form that routers and load balancers use.
type behavior struct {
	path      path
	publicMTU int
	gateway   Gateway
	header    balancer.Version
	// routes are the delays, used in turn, between the end of an action and the effect of its
	// route.
	routes []time.Duration
}

// behaviorOf returns the behavior that is given, filled with what was measured. It is the zero
// value if nothing is given and nothing was measured.
func behaviorOf(given profile.Network) (behavior, error) {
	known, err := measured.Profile()
	if err != nil {
		return behavior{}, err
	}
	n := over(given, known.Network)
	if reflect.DeepEqual(n, profile.Network{}) {
		return behavior{}, nil
	}
	return newBehavior(n)
}

// over returns the given profile, filled with the measured one.
func over(given, known profile.Network) profile.Network {
	n := profile.Network{
		PrivateMTU:       either(given.PrivateMTU, known.PrivateMTU),
		PublicMTU:        either(given.PublicMTU, known.PublicMTU),
		VSwitchMTU:       either(given.VSwitchMTU, known.VSwitchMTU),
		AnySource:        either(given.AnySource, known.AnySource),
		VSwitchAnySource: either(given.VSwitchAnySource, known.VSwitchAnySource),
		RouteSeconds:     given.RouteSeconds,
		ProxyProtocol:    either(given.ProxyProtocol, known.ProxyProtocol),
		RefuseProxied:    either(given.RefuseProxied, known.RefuseProxied),
		Neighbors:        either(given.Neighbors, known.Neighbors),
	}
	if len(n.RouteSeconds) == 0 {
		n.RouteSeconds = known.RouteSeconds
	}
	return n
}

// newBehavior fills the fields that a profile leaves out, and returns an error for values that no
// router supports.
func newBehavior(n profile.Network) (behavior, error) {
	n = over(n, profile.Default().Network)
	b := behavior{
		publicMTU: *n.PublicMTU,
		path: path{
			mtu: *n.PrivateMTU, vSwitchMTU: *n.VSwitchMTU, anySource: *n.AnySource,
			vSwitchAnySource: *n.VSwitchAnySource,
		},
		gateway: Gateway{
			RefuseProxied: *n.RefuseProxied, Neighbors: *n.Neighbors, AnySource: *n.VSwitchAnySource,
		},
		header: balancer.Version(*n.ProxyProtocol),
		routes: profile.Durations(n.RouteSeconds),
	}
	return b, errors.Join(
		mtuWithin("private_mtu", b.path.mtu, 576), mtuWithin("vswitch_mtu", b.path.vSwitchMTU, 576),
		mtuWithin("public_mtu", b.publicMTU, 1280),
	)
}

func either[T any](given, usual *T) *T {
	if given != nil {
		return given
	}
	return usual
}

// mtuWithin returns an error for an MTU outside the limits: at least that of IPv4 (RFC 791) or IPv6
// (RFC 8200), at most roomyMTU.
func mtuWithin(field string, mtu, least int) error {
	const most = 9000
	if mtu < least || mtu > most {
		return fmt.Errorf("%s %d: the lab takes %d to %d", field, mtu, least, most)
	}
	return nil
}

// inTurn returns a function that repeats the values in order; nil: always 0.
func inTurn(values []time.Duration) func() time.Duration {
	var count atomic.Int64
	return func() time.Duration {
		if len(values) == 0 {
			return 0
		}
		return values[int(count.Add(1)-1)%len(values)]
	}
}
