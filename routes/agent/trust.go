package agent

import (
	"net/netip"
	"slices"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/routes"
)

// trusted reports whether an address of a Node may be the one that its kubelet reported, in a
// cloud too: an attacker with one machine could otherwise open the filters of all others to
// any address, and have packets to it leave with pods' own source addresses. The prefix that
// the provider routes to the Node's machine is derived from the podCIDR that is cut from it.
func (d *decider) trusted(n *kube.Node, addr netip.Addr) bool {
	if slices.Contains(d.Inventory, addr) || contain(d.serverPrefixes(n), addr) || d.own(addr) {
		return true
	}
	e, ok := d.lookup.route(addr, addr.BitLen())
	if !ok || e.Kind != Unicast || !d.onUplink(e.Link) {
		return false
	}
	// All of a cloud's network may be behind a default route via the configured gateway.
	byGateway := d.Gateway.IsValid() && e.Via == d.Gateway && addr.IsPrivate()
	return e.Dst.Bits() > 0 || byGateway
}

// own reports whether the machine has the address.
func (d *decider) own(addr netip.Addr) bool {
	return slices.ContainsFunc(d.Links, func(l Link) bool { return l.has(addr) })
}

func contain(all []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(all, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// believed returns the trusted addresses of a Node. It records the rest; in a cloud only those
// of IPv6 that matter to filters, because nodes reach IPv4 pods from their private addresses.
func (d *decider) believed(n *kube.Node, addrs []netip.Addr) []netip.Addr {
	var found []netip.Addr
	for _, a := range addrs {
		if d.trusted(n, a) {
			found = append(found, a)
			continue
		}
		if d.Untrusting || a.Is6() && d.Modes.IPv6 == routes.Natively {
			d.doubtful = append(d.doubtful, Peer{n.Name, a.String()})
		}
	}
	return found
}

// distrust warns of the addresses that are not trusted.
func (d *decider) distrust() {
	known, remedy := "what the provider routes to their machines", "let them in by --allow-inbound if they are those machines', or find out who wrote them into the status of these Nodes, as their kubelets can"
	if d.Untrusting {
		known, remedy = "the inventory", "add them to the configuration's inventory if they are those machines'"
	}
	if len(d.doubtful) > 0 {
		d.warn("%d addresses of Nodes are neither in %s nor on a network of the uplinks %s, and are left out of the packet filter: %s; %s",
			len(d.doubtful), known, d.uplinkNames(), named(d.doubtful), remedy)
	}
}
