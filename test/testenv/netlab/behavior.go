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

// behavior is a profile.Network as routers and load balancers take it.
type behavior struct {
	path      path
	publicMTU int
	gateway   Gateway
	header    balancer.Version
	// routes are how long after their actions' ends routes lead packets, one after the other.
	routes []time.Duration
}

// behaviorOf is that of a lab without a network of its own making: the zero value if nothing is given
// and nothing was measured.
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

// over is what is given, filled with what was measured.
func over(given, known profile.Network) profile.Network {
	n := profile.Network{
		PrivateMTU: either(given.PrivateMTU, known.PrivateMTU), PublicMTU: either(given.PublicMTU, known.PublicMTU),
		VSwitchMTU: either(given.VSwitchMTU, known.VSwitchMTU), AnySource: either(given.AnySource, known.AnySource),
		VSwitchAnySource: either(given.VSwitchAnySource, known.VSwitchAnySource), RouteSeconds: given.RouteSeconds,
		ProxyProtocol: either(given.ProxyProtocol, known.ProxyProtocol), RefuseProxied: either(given.RefuseProxied, known.RefuseProxied),
		Neighbors: either(given.Neighbors, known.Neighbors),
	}
	if len(n.RouteSeconds) == 0 {
		n.RouteSeconds = known.RouteSeconds
	}
	return n
}

// newBehavior fills what a profile leaves out, and refuses what no router can do.
func newBehavior(n profile.Network) (behavior, error) {
	n = over(n, profile.Default().Network)
	b := behavior{
		publicMTU: *n.PublicMTU,
		path: path{
			mtu: *n.PrivateMTU, vSwitchMTU: *n.VSwitchMTU, anySource: *n.AnySource, vSwitchAnySource: *n.VSwitchAnySource,
		},
		gateway: Gateway{RefuseProxied: *n.RefuseProxied, Neighbors: *n.Neighbors, AnySource: *n.VSwitchAnySource},
		header:  balancer.Version(*n.ProxyProtocol),
		routes:  profile.Durations(n.RouteSeconds),
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

// mtuWithin refuses an MTU that hosts or the lab's ports can't have: of IPv4 (RFC 791), of IPv6
// (RFC 8200), and roomyMTU.
func mtuWithin(field string, mtu, least int) error {
	const most = 9000
	if mtu < least || mtu > most {
		return fmt.Errorf("%s %d: the lab takes %d to %d", field, mtu, least, most)
	}
	return nil
}

// inTurn returns one value after the other, again and again; nil: always 0.
func inTurn(values []time.Duration) func() time.Duration {
	var count atomic.Int64
	return func() time.Duration {
		if len(values) == 0 {
			return 0
		}
		return values[int(count.Add(1)-1)%len(values)]
	}
}
