package ipam

import (
	"fmt"
	"net/netip"
	"slices"
)

// maxOwnBits limits how many bits longer a node mask may be than a server's own prefix.
const maxOwnBits = 63

// cut returns the server's first own node prefix that is free and has no used addresses.
func (l *Ledger) cut(s *pool, h *Holding, node Node, offer Offer) (netip.Prefix, error) {
	own := canonical(offer.Own)
	switch {
	case !own.IsValid():
		return netip.Prefix{},
			fmt.Errorf("%w, and %s needs one: give it one, or configure another IPv6 pool", ErrNoOwn, s)
	case own.Addr().Is4() || own.Bits() >= s.NodeMask || s.NodeMask-own.Bits() > maxOwnBits:
		return netip.Prefix{},
			fmt.Errorf("%w: node prefixes of /%d for %s can't be cut from %s: change the node mask",
				ErrNoOwn, s.NodeMask, s, own)
	}
	for _, r := range l.overlaps(h, own) {
		if !sameMachine(r.holder, node) {
			return netip.Prefix{},
				fmt.Errorf("%w: Node %s has %s in %s: give each server its own, or configure another IPv6 pool",
					ErrSharedOwn, r.holder.Node.Name, r.prefix, own)
		}
	}
	g := grid{own, s.NodeMask}
	i, ok := l.scan(g, g.all(), offer.avoided()...)
	if !ok {
		return netip.Prefix{}, fmt.Errorf("%w: no free node prefix of /%d is left in %s: use a longer node mask for %s, or correct the exclusions",
			ErrNoOwn, s.NodeMask, own, s)
	}
	return g.at(i), nil
}

// sameMachine reports whether a holding is in quarantine and belonged to the Node's machine.
func sameMachine(h *Holding, node Node) bool {
	return h.gone() && node.ProviderID != "" && h.Node.ProviderID == node.ProviderID
}

// avoided returns the addresses that node prefixes must not contain: those of the offer and the
// first address, which is the subnet-router anycast address (RFC 4291, 2.6.1). Every node mask is
// short enough that the second address, which providers give to the server, is in the same block.
func (o Offer) avoided() []netip.Prefix {
	var all []netip.Prefix
	for _, a := range append([]netip.Addr{canonical(o.Own).Addr()}, o.Avoid...) {
		if a.IsValid() {
			all = append(all, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return all
}

// holds reports whether a node prefix could be cut from the server's own prefix.
func (o Offer) holds(p netip.Prefix) bool {
	own := canonical(o.Own)
	return own.IsValid() && own.Bits() < p.Bits() && own.Overlaps(p) &&
		!slices.ContainsFunc(o.avoided(), p.Overlaps)
}

// likelyOwn returns the pool that an unrecorded podCIDR was probably cut for: no range
// overlaps it, its length matches, and it is not in fc00::/7, which providers don't assign to
// servers. The servers' prefixes are not available here.
func (l *Ledger) likelyOwn(p netip.Prefix) *pool {
	if !p.Addr().Is6() || p.Addr().IsPrivate() {
		return nil
	}
	var likely *pool
	for _, s := range l.pools {
		switch {
		case !s.Own && s.Prefix.Overlaps(p):
			return nil
		case s.Own && s.NodeMask == p.Bits() && likely == nil:
			likely = s
		}
	}
	return likely
}
