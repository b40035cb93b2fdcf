package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/internal/measure"
	"github.com/underlay-ccm/underlay/internal/measure/inside"
)

const (
	// smallest is the size of the packets that must arrive before any other is tried, in bytes:
	// the least that every path of IPv6 carries.
	smallest = 1280
	// raisedMTU is what private interfaces are set to, so that the path is what limits packets.
	raisedMTU = 1500
	// sizeTries is how many packets of a size are sent, because one may be lost.
	sizeTries = 4
)

// path is a way from one server to another.
type path struct {
	from, to       *Server
	source, target netip.Addr
}

// privateMTU looks for the largest packet in the network.
func privateMTU(ctx context.Context, b *Bench) ([]measure.Observation, error) {
	from, to, err := b.pair(ctx)
	if err != nil {
		return nil, err
	}
	b.say("looking for the largest packet in the network")
	var notes []string
	for _, s := range []*Server{from, to} {
		is, err := interfaceOf(ctx, s, s.Private)
		if err != nil {
			return nil, err
		}
		if is.MTU >= raisedMTU {
			continue
		}
		// An interface may refuse: then no more than it allows can be seen.
		if err := s.Program.SetMTU(ctx, is.Name, raisedMTU); err != nil {
			notes = append(notes, fmt.Sprintf("the interface of %s allows no MTU above %d", s.Name, is.MTU))
			continue
		}
		defer restoreMTU(ctx, b, s, is)
	}
	size, limit, err := path{from, to, from.Private, to.Private}.largest(ctx)
	if err != nil {
		return nil, err
	}
	if size == limit {
		notes = append(notes, fmt.Sprintf("no larger one was tried: %d bytes are the interfaces' own MTU", limit))
	}
	return sees(measure.Observation{
		Fact: measure.PrivateMTU, Seen: measure.Bytes(size), Note: strings.Join(notes, "; "),
		Record: func(p *profile.Profile) { p.Network.PrivateMTU = &size },
	})
}

// restoreMTU gives an interface back what it had.
func restoreMTU(ctx context.Context, b *Bench, s *Server, is inside.Interface) {
	if err := s.Program.SetMTU(ctx, is.Name, is.MTU); err != nil {
		b.say("giving an interface its MTU back: %v", err)
	}
}

// publicMTU looks for the largest packet between public addresses of both families. The smaller
// one counts.
func publicMTU(ctx context.Context, b *Bench) ([]measure.Observation, error) {
	from, to, err := b.pair(ctx)
	if err != nil {
		return nil, err
	}
	b.say("looking for the largest packet between public addresses")
	var sizes []int
	var notes []string
	for _, p := range []path{{from, to, from.Public4, to.Public4}, {from, to, from.Public6, to.Public6}} {
		family := "IPv6"
		if p.source.Is4() {
			family = "IPv4"
		}
		if !p.source.IsValid() || !p.target.IsValid() {
			continue
		}
		size, limit, err := p.largest(ctx)
		if err != nil {
			return nil, fmt.Errorf("by %s: %w", family, err)
		}
		note := fmt.Sprintf("%s: %d bytes", family, size)
		if size == limit {
			note += ", the interfaces' own MTU"
		}
		sizes, notes = append(sizes, size), append(notes, note)
	}
	if len(sizes) == 0 {
		return nil, errors.New("the servers have no public addresses of the same family")
	}
	size := slices.Min(sizes)
	return sees(measure.Observation{
		Fact: measure.PublicMTU, Seen: measure.Bytes(size), Note: strings.Join(notes, "; "),
		Record: func(p *profile.Profile) { p.Network.PublicMTU = &size },
	})
}

// errNoInterface is that no interface of a server has the address that the cloud gave it.
var errNoInterface = errors.New("no interface has the address that the cloud gave the server")

// interfaceOf is the one that has the address.
func interfaceOf(ctx context.Context, s *Server, address netip.Addr) (inside.Interface, error) {
	all, err := s.Program.Interfaces(ctx)
	if err != nil {
		return inside.Interface{}, err
	}
	for _, is := range all {
		if slices.ContainsFunc(is.Addresses, func(p netip.Prefix) bool { return p.Addr() == address }) {
			return is, nil
		}
	}
	return inside.Interface{}, fmt.Errorf("server %s: %w", s.Name, errNoInterface)
}

// largest is the size of the largest packet that arrives, in bytes, and the largest that the
// interfaces of both ends allow.
func (p path) largest(ctx context.Context) (size, limit int, err error) {
	for _, end := range []struct {
		server  *Server
		address netip.Addr
	}{{p.from, p.source}, {p.to, p.target}} {
		is, err := interfaceOf(ctx, end.server, end.address)
		if err != nil {
			return 0, 0, err
		}
		if limit == 0 || is.MTU < limit {
			limit = is.MTU
		}
	}
	size, err = p.upTo(ctx, limit)
	return size, limit, err
}

// upTo is the size of the largest packet that arrives, in bytes, of those up to a limit. What the
// halving found is asked for once more: if it, or the next size, turns out otherwise, something was
// lost for another cause than its size.
func (p path) upTo(ctx context.Context, limit int) (size int, err error) {
	if err := p.to.Program.Receive(ctx, mtuPort); err != nil {
		return 0, err
	}
	size = min(smallest, limit)
	// A path may take a moment to carry anything.
	err = lookFor(ctx, settles, look, func() (bool, error) { return p.once(ctx, size) })
	if errors.Is(err, errLate) {
		return 0, fmt.Errorf("not even packets of %d bytes arrive", size)
	}
	if err != nil {
		return 0, err
	}
	if ok, err := p.carries(ctx, limit); ok || err != nil {
		return limit, err
	}
	for tooLarge := limit; tooLarge-size > 1; {
		middle := (size + tooLarge) / 2
		ok, err := p.carries(ctx, middle)
		switch {
		case err != nil:
			return 0, err
		case ok:
			size = middle
		default:
			tooLarge = middle
		}
	}
	return size, p.confirm(ctx, size)
}

// confirm fails unless packets of a size arrive, and those that are a byte larger don't.
func (p path) confirm(ctx context.Context, size int) error {
	if err := p.to.Program.Receive(ctx, mtuPort); err != nil { // forgets those before
		return err
	}
	for _, of := range []int{size, size + 1} {
		ok, err := p.carries(ctx, of)
		switch {
		case err != nil:
			return err
		case ok != (of == size):
			return fmt.Errorf("packets of %d bytes arrive at one time and not at another: try again", of)
		}
	}
	return nil
}

// carries reports whether packets of a size arrive. A size that fails is tried again a little later,
// because a path may lose everything for a moment.
func (p path) carries(ctx context.Context, size int) (bool, error) {
	ok, err := p.once(ctx, size)
	if ok || err != nil {
		return ok, err
	}
	if err := wait(ctx, time.Second); err != nil {
		return false, err
	}
	return p.once(ctx, size)
}

// once reports whether packets of a size arrive that nobody may divide.
func (p path) once(ctx context.Context, size int) (bool, error) {
	err := p.from.Program.Send(ctx, inside.Stream{
		From: netip.AddrPortFrom(p.source, sentFrom), To: netip.AddrPortFrom(p.target, mtuPort),
		Every: 10 * time.Millisecond, Count: sizeTries, Size: size, DontFragment: true,
	})
	if errors.Is(err, inside.ErrTooLarge) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	err = lookFor(ctx, arrives, look, func() (bool, error) {
		all, err := came(ctx, p.to, mtuPort, p.source, p.target)
		return slices.ContainsFunc(all, func(g inside.Packet) bool { return g.Size == size }), err
	})
	if errors.Is(err, errLate) {
		return false, nil
	}
	return err == nil, err
}
