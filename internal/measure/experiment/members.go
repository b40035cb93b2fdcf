package experiment

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/internal/measure"
)

// freed is how long an address may be taken still that the API shows no more.
const freed = 20 * time.Second

// addressReuse lets two servers take turns in a network, twice: each gives its address back before
// the next gets one. An answer is what all of the addresses say: one that is freed late looks like
// one that is given out in turn, but not for long.
func addressReuse(ctx context.Context, b *Bench) ([]measure.Observation, error) {
	n, err := b.Scratch(ctx)
	if err != nil {
		return nil, err
	}
	var all []string
	var before netip.Addr
	for turn := range 4 {
		b.say("looking for an address that was given back, %d of 4", turn+1)
		s, err := b.Server(ctx, turn%2)
		if err != nil {
			return nil, err
		}
		if turn == 2 {
			if err := wait(ctx, freed); err != nil {
				return nil, err
			}
		}
		after, err := b.visit(ctx, n, s)
		if err != nil {
			return nil, err
		}
		if turn > 0 {
			all = append(all, next(before, after))
		}
		before = after
	}
	seen := measure.Observation{Fact: measure.AddressReuse, Seen: all[0]}
	switch {
	case slices.ContainsFunc(all, func(s string) bool { return s != all[0] }):
		return sees(unsure(measure.AddressReuse, "no rule: %s", strings.Join(all, ", then ")))
	case all[0] == measure.Lowest || all[0] == measure.InTurn:
		seen.Record = func(p *profile.Profile) { p.Cloud.AddressesInTurn = new(all[0] == measure.InTurn) }
	}
	return sees(seen)
}

// next says which address comes after another one.
func next(before, after netip.Addr) string {
	switch {
	case after == before:
		return measure.Lowest
	case after == before.Next():
		return measure.InTurn
	case before.Less(after):
		return "a later one, not the next"
	}
	return "an earlier one"
}

// visit takes a server into a network and out again, until the API shows it without, and returns
// the address that it had.
func (b *Bench) visit(ctx context.Context, n *Network, s *Server) (netip.Addr, error) {
	at, err := b.attach(ctx, n, s)
	if err == nil {
		_, err = b.Change(ctx, "detaching a server", b.detaching(n, s))
	}
	if err != nil {
		b.detach(ctx, n, s)
		return netip.Addr{}, err
	}
	return at, until(ctx, "the server is still in its network", func() (bool, error) {
		now, _, err := b.client().Server.GetByID(ctx, s.ID)
		if err != nil {
			return false, err
		}
		if now == nil {
			return false, errGone
		}
		return !b.serverFrom(now, n).Private.IsValid(), nil
	})
}

// attach takes a server into a network that is not the shared one, and returns its address there.
func (b *Bench) attach(ctx context.Context, n *Network, s *Server) (netip.Addr, error) {
	change := func(ctx context.Context) (*hcloud.Action, *hcloud.Response, error) {
		opts := hcloud.ServerAttachToNetworkOpts{Network: n.ref()}
		return b.client().Server.AttachToNetwork(ctx, s.ref(), opts)
	}
	_, err := b.Change(ctx, "attaching a server", change)
	if err != nil {
		return netip.Addr{}, err
	}
	now, err := b.awaitServer(ctx, s.ID, n)
	if err != nil {
		return netip.Addr{}, err
	}
	return now.Private, nil
}

// detach takes it out again; it may be out already.
func (b *Bench) detach(ctx context.Context, n *Network, s *Server) {
	b.Cleanup(ctx, "detaching a server", b.detaching(n, s))
}

func (b *Bench) detaching(n *Network, s *Server,
) change {
	return func(ctx context.Context) (*hcloud.Action, *hcloud.Response, error) {
		opts := hcloud.ServerDetachFromNetworkOpts{Network: n.ref()}
		return b.client().Server.DetachFromNetwork(ctx, s.ref(), opts)
	}
}
