package ipam

import (
	"fmt"
	"net/netip"
)

// ownPool counts the node prefixes that were cut from servers' own prefixes. There is no range
// that it could hand out from.
type ownPool struct {
	config PoolConfig
	held   map[netip.Prefix]slot
	gone   uint64 // how many of them are in quarantine
}

func newOwnPool(config PoolConfig) *ownPool {
	return &ownPool{config: config, held: map[netip.Prefix]slot{}}
}

// Claim records a holder.
func (o *ownPool) Claim(prefix netip.Prefix, holder string) error {
	if s, held := o.held[prefix]; held && s.holder != holder {
		return fmt.Errorf("%s: %s is held by %q: release it there first", o.config, prefix, s.holder)
	}
	o.set(prefix, slot{holder: holder})
	return nil
}

// Release ends the holder's claim.
func (o *ownPool) Release(prefix netip.Prefix, holder string) error {
	if err := o.heldBy(prefix, holder); err != nil {
		return err
	}
	o.set(prefix, slot{})
	delete(o.held, prefix)
	return nil
}

// Pass gives a prefix from its holder to another.
func (o *ownPool) Pass(prefix netip.Prefix, holder, to string) error {
	if err := o.heldBy(prefix, holder); err != nil {
		return err
	}
	o.set(prefix, slot{to, o.held[prefix].quarantined})
	return nil
}

// Quarantine says whether the holder is gone.
func (o *ownPool) Quarantine(prefix netip.Prefix, holder string, gone bool) error {
	if err := o.heldBy(prefix, holder); err != nil {
		return err
	}
	o.set(prefix, slot{holder, gone})
	return nil
}

// Counts counts what is held: nothing is ever free here.
func (o *ownPool) Counts() Counts {
	return Counts{
		Name: o.config.Name, NodeMask: o.config.NodeMask, State: o.config.State,
		Allocated: uint64(len(o.held)) - o.gone, Quarantined: o.gone,
	}
}

func (o *ownPool) heldBy(prefix netip.Prefix, holder string) error {
	if s, held := o.held[prefix]; !held || s.holder != holder {
		return fmt.Errorf("%s: %s is not held by %q: nothing to release", o.config, prefix, holder)
	}
	return nil
}

func (o *ownPool) set(prefix netip.Prefix, s slot) {
	if o.held[prefix].quarantined {
		o.gone--
	}
	if s.quarantined {
		o.gone++
	}
	o.held[prefix] = s
}

// maxOwnBits is how many bits a node mask may lie below a server's own prefix.
const maxOwnBits = 63

// cut returns the first node prefix in the server's own prefix that nobody holds and that holds
// no address of the server.
func (l *Ledger) cut(s *source, h *holding, node Node, offer Offer) (netip.Prefix, error) {
	own := canonical(offer.Own)
	switch {
	case !own.IsValid():
		return netip.Prefix{}, fmt.Errorf("%w, and %s needs one: give it one, or configure another IPv6 pool", ErrNoOwn, s)
	case own.Addr().Is4() || own.Bits() >= s.NodeMask || s.NodeMask-own.Bits() > maxOwnBits:
		return netip.Prefix{}, fmt.Errorf("%w: node prefixes of /%d for %s can't be cut from %s: change the node mask",
			ErrNoOwn, s.NodeMask, s, own)
	}
	for _, r := range l.rivals(h, own) {
		if !sameMachine(r.holder, node) {
			return netip.Prefix{}, fmt.Errorf("%w: Node %s has %s in %s: give each server its own, or configure another IPv6 pool",
				ErrSharedOwn, r.holder.node.Name, r.prefix, own)
		}
	}
	g := grid{own, s.NodeMask}
	inTheWay := offer.avoided()
	for q := range l.seats.overlapping(own) {
		inTheWay = append(inTheWay, q)
	}
	for q := range l.exclusions.overlapping(own) {
		inTheWay = append(inTheWay, q)
	}
	i := g.spans(inTheWay).gap()
	if i >= g.size() {
		return netip.Prefix{}, fmt.Errorf("%w: no free node prefix of /%d is left in %s: use a longer node mask for %s, or correct the exclusions",
			ErrNoOwn, s.NodeMask, own, s)
	}
	return g.at(i), nil
}

// sameMachine tells whether a holding is what the Node's own machine had before.
func sameMachine(h *holding, node Node) bool {
	return h.gone() && node.ProviderID != "" && h.node.ProviderID == node.ProviderID
}

// avoided are the addresses that node prefixes must not hold: those of the offer, and the first,
// which is the subnet router's (RFC 4291, 2.6.1). No node mask is so long that the second, which
// providers give the server, would not be in the same block.
func (o Offer) avoided() []netip.Prefix {
	var all []netip.Prefix
	for _, a := range append([]netip.Addr{canonical(o.Own).Addr()}, o.Avoid...) {
		if a.IsValid() {
			all = append(all, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return all
}

// holds tells whether a node prefix is one that could be cut from the server's own prefix.
func (o Offer) holds(p netip.Prefix) bool {
	own := canonical(o.Own)
	if !own.IsValid() || own.Bits() >= p.Bits() || !own.Overlaps(p) {
		return false
	}
	for _, a := range o.avoided() {
		if p.Overlaps(a) {
			return false
		}
	}
	return true
}

// likelyOwn returns the pool that a podCIDR was probably cut for, when nothing is recorded of
// it: no range has it, its length is right, and it is not from the private range, which
// providers don't give to servers. The Ledger does not know the servers' prefixes here.
func (l *Ledger) likelyOwn(p netip.Prefix) *source {
	if !p.Addr().Is6() || p.Addr().IsPrivate() {
		return nil
	}
	var likely *source
	for _, s := range l.sources {
		switch {
		case !s.Own && s.Prefix.Overlaps(p):
			return nil
		case s.Own && s.NodeMask == p.Bits() && likely == nil:
			likely = s
		}
	}
	return likely
}
