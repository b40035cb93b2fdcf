package ipam

import (
	"fmt"
	"net/netip"
	"slices"
)

// maxOwnBits is how many bits a node mask may lie below a server's own prefix.
const maxOwnBits = 63

// cut returns the first node prefix in the server's own prefix that nobody holds and that holds
// no address of the server.
func (l *Ledger) cut(s *pool, h *holding, node Node, offer Offer) (netip.Prefix, error) {
	own := canonical(offer.Own)
	switch {
	case !own.IsValid():
		return netip.Prefix{}, fmt.Errorf("%w, and %s needs one: give it one, or configure another IPv6 pool", ErrNoOwn, s)
	case own.Addr().Is4() || own.Bits() >= s.NodeMask || s.NodeMask-own.Bits() > maxOwnBits:
		return netip.Prefix{}, fmt.Errorf("%w: node prefixes of /%d for %s can't be cut from %s: change the node mask",
			ErrNoOwn, s.NodeMask, s, own)
	}
	for _, r := range l.overlaps(h, own) {
		if !sameMachine(r.holder, node) {
			return netip.Prefix{}, fmt.Errorf("%w: Node %s has %s in %s: give each server its own, or configure another IPv6 pool",
				ErrSharedOwn, r.holder.node.Name, r.prefix, own)
		}
	}
	g := grid{own, s.NodeMask}
	i := g.spans(slices.AppendSeq(offer.avoided(), l.inTheWay(own))).gap()
	if i >= g.size() {
		return netip.Prefix{}, fmt.Errorf("%w: no free node prefix of /%d is left in %s: use a longer node mask for %s, or correct the exclusions",
			ErrNoOwn, s.NodeMask, own, s)
	}
	return g.at(i), nil
}

// sameMachine reports whether a holding is what the Node's own machine had before.
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

// holds reports whether a node prefix is one that could be cut from the server's own prefix.
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
