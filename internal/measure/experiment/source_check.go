package experiment

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/internal/measure"
	"github.com/underlay-ccm/underlay/internal/measure/inside"
)

// sourceCheck sends packets in the network from an address that nobody has, and, so that their
// silence means something, from the sender's own: once those have arrived, both again, which count.
func sourceCheck(ctx context.Context, b *Bench) ([]measure.Observation, error) {
	from, to, err := b.pair(ctx)
	if err != nil {
		return nil, err
	}
	network, err := b.Network(ctx)
	if err != nil {
		return nil, err
	}
	foreign, err := network.outside(0)
	if err != nil {
		return nil, err
	}
	b.say("sending packets from an address that the server doesn't have")
	var own, alien []inside.Packet
	both := func() (err error) {
		own, alien, err = sendBoth(ctx, from, to, foreign)
		return err
	}
	// A path may take a moment to carry anything.
	err = lookFor(ctx, settles, look, func() (bool, error) {
		err := both()
		return len(own) > 0, err
	})
	if err == nil {
		err = both()
	}
	switch {
	case errors.Is(err, errLate):
		return sees(unsure(measure.SourceCheck,
			"packets from a server's own address don't arrive in the network either"))
	case err != nil:
		return nil, err
	case len(own) == 0:
		return sees(unsure(measure.SourceCheck,
			"packets from a server's own address arrive in the network at one time and not at another: try again"))
	}
	forwarded := len(alien) > 0
	return sees(measure.Observation{
		Fact: measure.SourceCheck, Record: func(p *profile.Profile) { p.Network.AnySource = &forwarded },
	})
}

// sendBoth sends packets from the foreign address and from the sender's own one, and returns those
// that have arrived.
func sendBoth(ctx context.Context, from, to *Server, foreign netip.Addr) (own, alien []inside.Packet, err error) {
	if err := to.Program.Receive(ctx, sourcePort); err != nil { // forgets those before
		return nil, nil, err
	}
	for _, source := range []netip.Addr{foreign, from.Private} {
		err := from.Program.Send(ctx, inside.Stream{
			From: netip.AddrPortFrom(source, sentFrom), To: netip.AddrPortFrom(to.Private, sourcePort),
			Every: 20 * time.Millisecond, Count: 25,
		})
		if err != nil {
			return nil, nil, err
		}
	}
	// Those that were sent first may have gone another way.
	if err := wait(ctx, arrives); err != nil {
		return nil, nil, err
	}
	if own, err = came(ctx, to, sourcePort, from.Private, to.Private); err != nil {
		return nil, nil, err
	}
	alien, err = came(ctx, to, sourcePort, foreign, to.Private)
	return own, alien, err
}
