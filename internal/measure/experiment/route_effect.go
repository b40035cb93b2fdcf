package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/internal/ipnet"
	"github.com/underlay-ccm/underlay/internal/measure"
	"github.com/underlay-ccm/underlay/internal/measure/inside"
)

const (
	routeTries = 4
	// routeTick is the time between two packets, and so how exact the answer is at most.
	routeTick = 20 * time.Millisecond
	// routeLead is how long packets are sent before the route is asked for.
	routeLead = time.Second
	// routePatience is how long a route may take to lead packets, once its action has ended, and
	// as long to stop.
	routePatience = 20 * time.Second
	// routeStream is how many packets are sent for one route: for two minutes.
	routeStream = int(2 * time.Minute / routeTick)
)

// routeTimes are when a route led the first packet, after the end of the action that added it, and
// the last one, after the end of the action that removed it. Negative: before.
type routeTimes struct{ led, stopped time.Duration }

// routeEffect sends packets to an address that only a route leads to, adds the route, and looks
// which packet was the first to arrive.
func routeEffect(ctx context.Context, b *Bench) ([]measure.Observation, error) {
	from, to, err := b.pair(ctx)
	if err != nil {
		return nil, err
	}
	network, err := b.Network(ctx)
	if err != nil {
		return nil, err
	}
	var led, stopped []time.Duration
	for n := range routeTries {
		b.say("looking when a route leads packets, %d of %d", n+1, routeTries)
		times, err := tryRoute(ctx, b, network, from, to, n)
		if err != nil && len(led) > 0 && ctx.Err() == nil {
			b.say("a route: %v", err) // those before have been seen
			break
		}
		if err != nil {
			return nil, err
		}
		led, stopped = append(led, times.led), append(stopped, times.stopped)
	}
	slices.Sort(led)
	slices.Sort(stopped)
	seconds := make([]float64, len(led))
	for i, d := range led {
		seconds[i] = float64(d.Round(time.Millisecond).Milliseconds()) / 1000
	}
	return sees(measure.Observation{
		Fact: measure.RouteEffect, Seen: measure.Around(led),
		Note: fmt.Sprintf("%d routes; the last packet that a removed one led: %s the end of its action",
			len(led), measure.Around(stopped)),
		Record: func(p *profile.Profile) { p.Network.RouteSeconds = seconds },
	})
}

// tryRoute adds and removes the n-th route.
func tryRoute(ctx context.Context, b *Bench, network *Network, from, to *Server, n int) (routeTimes, error) {
	target, err := network.outside(1 + n)
	if err != nil {
		return routeTimes{}, err
	}
	route := netip.PrefixFrom(target, target.BitLen())
	if err := to.Program.AddAddress(ctx, route, "lo"); err != nil {
		return routeTimes{}, err
	}
	defer giveBack(ctx, b, to, route)
	port := routePort + uint16(n)
	if err := to.Program.Receive(ctx, port); err != nil {
		return routeTimes{}, err
	}
	clock, err := from.Program.Clock(ctx)
	if err != nil {
		return routeTimes{}, err
	}
	err = from.Program.Start(ctx, inside.Stream{
		From: netip.AddrPortFrom(from.Private, sentFrom), To: netip.AddrPortFrom(target, port),
		Every: routeTick, Count: routeStream,
	})
	if err != nil {
		return routeTimes{}, err
	}
	// When packets were sent that arrived, by our clock.
	sent := func() ([]time.Time, error) {
		all, err := came(ctx, to, port, from.Private, target)
		out := make([]time.Time, len(all))
		for i, p := range all {
			out[i] = clock.Ours(p.Sent)
		}
		slices.SortFunc(out, time.Time.Compare)
		return out, err
	}
	if err := wait(ctx, routeLead); err != nil {
		return routeTimes{}, err
	}
	switch early, err := sent(); {
	case err != nil:
		return routeTimes{}, err
	case len(early) > 0:
		return routeTimes{}, errors.New("packets arrive before there is a route for them")
	}
	return followRoute(ctx, b, network, route, to.Private, sent)
}

// followRoute adds a route and removes it, and looks which packets it led.
func followRoute(ctx context.Context, b *Bench, network *Network, dst netip.Prefix, via netip.Addr,
	sent func() ([]time.Time, error),
) (out routeTimes, err error) {
	opts := hcloud.NetworkRoute{Destination: ipnet.Of(dst), Gateway: via.AsSlice()}
	added, err := b.ended(ctx, "adding a route", func(ctx context.Context) (*hcloud.Action, *hcloud.Response, error) {
		return b.client().Network.AddRoute(ctx, network.ref(), hcloud.NetworkAddRouteOpts{Route: opts})
	})
	if err != nil && !errors.Is(err, errInexact) {
		return out, err
	}
	removed := false
	remove := func(ctx context.Context) (*hcloud.Action, *hcloud.Response, error) {
		return b.client().Network.DeleteRoute(ctx, network.ref(), hcloud.NetworkDeleteRouteOpts{Route: opts})
	}
	defer func() {
		if !removed {
			b.Cleanup(ctx, "removing a route", remove)
		}
	}()
	if err != nil {
		return out, err
	}
	err = lookFor(ctx, routePatience, look, func() (bool, error) {
		led, err := sent()
		if len(led) > 0 {
			out.led = led[0].Sub(added)
		}
		return len(led) > 0, err
	})
	if errors.Is(err, errLate) {
		return out, fmt.Errorf("no packet took the route within %s after the end of its action", routePatience)
	}
	if err != nil {
		return out, err
	}
	gone, err := b.ended(ctx, "removing a route", remove)
	removed = err == nil || errors.Is(err, errInexact)
	if err != nil {
		return out, err
	}
	// It has stopped once a second brings no more.
	count := -1
	err = lookFor(ctx, routePatience, time.Second, func() (bool, error) {
		led, err := sent()
		if len(led) > 0 {
			out.stopped = led[len(led)-1].Sub(gone)
		}
		same := len(led) == count
		count = len(led)
		return same, err
	})
	if errors.Is(err, errLate) {
		return out, fmt.Errorf("packets still took the route %s after the end of its removal", routePatience)
	}
	return out, err
}

// errInexact says that a change was made, and that nobody knows when exactly.
var errInexact = errors.New("the end of its action is not known exactly: " + inexact)

// ended makes a change, and tells when its action ended: as exactly as it was looked at, or it is an
// errInexact.
func (b *Bench) ended(ctx context.Context, what string,
	change change,
) (time.Time, error) {
	var replied time.Time
	took, exact, err := b.timed(ctx, what, func(ctx context.Context) (*hcloud.Action, *hcloud.Response, error) {
		action, response, err := change(ctx)
		replied = time.Now()
		return action, response, err
	})
	if err == nil && !exact {
		err = fmt.Errorf("%s: %w", what, errInexact)
	}
	return replied.Add(took), err
}

// giveBack takes an address from a server's loopback.
func giveBack(ctx context.Context, b *Bench, s *Server, address netip.Prefix) {
	if err := s.Program.RemoveAddress(ctx, address, "lo"); err != nil {
		b.say("taking an address from a server: %v", err)
	}
}
