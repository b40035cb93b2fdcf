package agent

import (
	"fmt"
	"net/netip"
	"slices"
)

// trusted reports whether an address of a Node may be what its kubelet says: who
// has one machine could otherwise open the filters of all others to any address,
// and have packets to it leave under pods' own.
func (d *decider) trusted(addr netip.Addr) bool {
	if !d.Untrusting || slices.Contains(d.Inventory, addr) {
		return true
	}
	if slices.ContainsFunc(d.Links, func(l Link) bool { return l.has(addr) }) {
		return true // this machine's
	}
	e, ok := d.lookup.route(addr, addr.BitLen())
	return ok && e.Kind == Unicast && e.Dst.Bits() > 0 && d.onUplink(e.Link)
}

// believed are the addresses of a Node that are trusted. It notes the others.
func (d *decider) believed(n Node, addrs []netip.Addr) []netip.Addr {
	var found []netip.Addr
	for _, a := range addrs {
		if d.trusted(a) {
			found = append(found, a)
			continue
		}
		d.doubtful = append(d.doubtful, Peer{n.Name, a.String()})
	}
	return found
}

// distrust tells of addresses that are not trusted.
func (d *decider) distrust() []string {
	if len(d.doubtful) == 0 {
		return nil
	}
	return []string{fmt.Sprintf(
		"%d addresses of Nodes are neither in the inventory nor on a network of the uplinks %s, and are left out of the packet filter: %s; add them to the configuration's inventory if they are those machines'",
		len(d.doubtful), d.uplinkNames(), named(d.doubtful))}
}
