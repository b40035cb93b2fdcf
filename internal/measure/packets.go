package measure

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sort"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/internal/ipnet"
	"github.com/underlay-ccm/underlay/internal/sleep"
)

const (
	sourcePort = 7002
	mtuPort    = 7003
	routePort  = 7010 // first port for routes
)

const (
	// arrives limits the transit time of a packet.
	arrives = 2 * time.Second
	// settles limits the time until a new path forwards packets.
	settles = 20 * time.Second
	// smallest is the minimum IPv6 MTU in bytes, which every path forwards. raised is the MTU set
	// on private interfaces, so that the path limits packets and not the interface.
	smallest, raised = 1280, 1500
	// smallPacket is the packet size in bytes where it does not matter.
	smallPacket = 64
	// routeTries is the number of added routes. For each, a packet is sent every routeTick, and
	// no packet may arrive during routeLead before the route is added.
	routeTries = 3
	routeTick  = 20 * time.Millisecond
	routeLead  = time.Second
	// routeStream is the duration of the packet stream for a route.
	routeStream = time.Minute
)

// sourceCheck sends packets in the network from an address that no server has. It sends packets
// from the sender's own address first, so that the loss of the former is significant.
func sourceCheck(ctx context.Context, r *run) (record, error) {
	from, to, err := r.pair()
	if err != nil {
		return nil, err
	}
	foreign := netip.MustParseAddr("10.200.255.254")
	arrived := func(source netip.Addr) (bool, error) {
		err := from.send(ctx, stream{
			from: source, to: netip.AddrPortFrom(to.private, sourcePort), size: smallPacket,
			count: 25, every: routeTick,
		}, true)
		if err == nil {
			err = sleep.For(ctx, arrives)
		}
		if err != nil {
			return false, err
		}
		came, err := to.packets(ctx, sourcePort, source)
		return len(came) > 0, err
	}
	if err := to.receive(ctx, sourcePort); err != nil {
		return nil, err
	}
	own := func() (bool, error) { return arrived(from.private) }
	if err := until(ctx, settles, "packets arrive in the network", own); err != nil {
		return nil, err
	}
	forwarded, err := arrived(foreign)
	if err != nil {
		return nil, err
	}
	return func(p *profile.Profile) { p.Network.AnySource = new(forwarded) }, nil
}

func privateMTU(ctx context.Context, r *run) (record, error) {
	from, to, err := r.pair()
	if err != nil {
		return nil, err
	}
	for _, s := range []*server{from, to} {
		d, err := s.device(ctx, s.private)
		if err != nil {
			return nil, err
		}
		if d.MTU >= raised || s.setMTU(ctx, d.Name, raised) != nil {
			continue // the measurement is then limited by the interface's MTU
		}
		defer func() { r.drop(s.setMTU(ctx, d.Name, d.MTU)) }()
	}
	size, err := largest(ctx, from, to, from.private, to.private)
	return func(p *profile.Profile) { p.Network.PrivateMTU = new(size) }, err
}

// publicMTU measures the smaller MTU of both address families.
func publicMTU(ctx context.Context, r *run) (record, error) {
	from, to, err := r.pair()
	if err != nil {
		return nil, err
	}
	size, err := largest(ctx, from, to, from.public4, to.public4)
	if err == nil && from.public6.IsValid() && to.public6.IsValid() {
		var size6 int
		size6, err = largest(ctx, from, to, from.public6, to.public6)
		size = min(size, size6)
	}
	return func(p *profile.Profile) { p.Network.PublicMTU = new(size) }, err
}

// largest returns the size of the largest packet that arrives, up to the interfaces' own MTUs.
func largest(ctx context.Context, from, to *server, source, target netip.Addr) (int, error) {
	out, err := from.device(ctx, source)
	if err != nil {
		return 0, err
	}
	in, err := to.device(ctx, target)
	if err != nil {
		return 0, err
	}
	if err := to.receive(ctx, mtuPort); err != nil {
		return 0, err
	}
	sent := func(size int) (bool, error) {
		err := from.send(ctx, stream{
			from: source, to: netip.AddrPortFrom(target, mtuPort), size: size, count: 4,
		}, true)
		if err != nil {
			return false, err
		}
		arrived := false
		for end := time.Now().Add(arrives); !arrived && err == nil && time.Now().Before(end); {
			var all []packet
			all, err = to.packets(ctx, mtuPort, source)
			arrived = slices.ContainsFunc(all, func(p packet) bool { return p.Size == size })
			if err == nil && !arrived {
				err = sleep.For(ctx, lookEvery)
			}
		}
		return arrived, err
	}
	err = until(ctx, settles, fmt.Sprintf("packets of %d bytes arrive", smallest),
		func() (bool, error) { return sent(smallest) })
	if err != nil {
		return 0, err
	}
	// Find the smallest size lost in two tries: a path may lose a packet for other reasons.
	lost := sort.Search(min(out.MTU, in.MTU)-smallest, func(n int) bool {
		arrived := false
		for range 2 {
			if err == nil && !arrived {
				arrived, err = sent(smallest + 1 + n)
			}
		}
		return !arrived
	})
	return smallest + lost, err
}

// routeEffect sends packets to an address that only a route reaches, adds the route, and
// determines the first packet that arrived.
func routeEffect(ctx context.Context, r *run) (record, error) {
	from, to, err := r.pair()
	if err != nil {
		return nil, err
	}
	var seconds []float64
	for n := range routeTries {
		after, err := r.tryRoute(ctx, from, to, n)
		if err != nil {
			return nil, err
		}
		seconds = append(seconds, milliseconds(after))
	}
	return func(p *profile.Profile) { p.Network.RouteSeconds = seconds }, nil
}

// tryRoute returns the time from the end of the route's action to the sending of the first packet
// that arrived; negative if it was sent before.
func (r *run) tryRoute(
	ctx context.Context, from, to *server, n int,
) (after time.Duration, err error) {
	network, err := r.network()
	if err != nil {
		return 0, err
	}
	target := netip.AddrFrom4([4]byte{10, 200, 255, byte(1 + n)})
	dst := netip.PrefixFrom(target, 32)
	if _, err := to.ip(ctx, "address", "add", dst.String(), "dev", "lo"); err != nil {
		return 0, err
	}
	port := uint16(routePort + n)
	if err := to.receive(ctx, port); err != nil {
		return 0, err
	}
	clock, err := from.clock(ctx)
	if err != nil {
		return 0, err
	}
	err = from.send(ctx, stream{
		from: from.private, to: netip.AddrPortFrom(target, port), size: smallPacket,
		count: int(routeStream / routeTick), every: routeTick,
	}, false)
	if err == nil {
		err = sleep.For(ctx, routeLead)
	}
	if err != nil {
		return 0, err
	}
	var came []packet
	arrived := func() (_ bool, err error) {
		came, err = to.packets(ctx, port, from.private)
		return len(came) > 0, err
	}
	if early, err := arrived(); early || err != nil {
		return 0, errors.Join(err, errors.New("packets arrive before there is a route for them"))
	}
	route := hcloud.NetworkRoute{Destination: ipnet.Of(dst), Gateway: to.private.AsSlice()}
	if err := r.addRoute(ctx, network, route); err != nil {
		return 0, err
	}
	ended := time.Now()
	err = until(ctx, settles, "packets take a route whose action has ended", arrived)
	r.drop(r.deleteRoute(ctx, network, route))
	if err != nil {
		return 0, err
	}
	return clock.Add(came[0].Sent).Sub(ended), nil
}
