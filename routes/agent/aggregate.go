package agent

import (
	"cmp"
	"net/netip"
	"slices"
)

// aggregates adds the routes to all pods through the cloud network's gateway: none for
// addresses that a route of the machine sends there already, because they are inside the
// network's range, else one route for each contiguous range of the pools, which is nearly
// always one. While the gateway is unknown, existing routes are kept.
func (d *decider) aggregates(ipv4 bool) {
	for _, pool := range merge(d.Pools) {
		if pool.Addr().Is4() != ipv4 {
			continue
		}
		if e, ok := d.lookup.route(pool.Addr(), pool.Bits()); ok && e.Dst.Bits() > 0 && e.Via.IsValid() &&
			d.onUplink(e.Link) {
			continue
		}
		gateway, link, ok := d.gateway(ipv4)
		if !ok {
			// For example while a DHCP client restarts. Without the existing routes, packets
			// for pods would leave through the default route.
			d.held[pool] = d.Gateway
			d.fault("pods' %s has no gateway: no interface of the uplinks %s has a route to the cloud's network through its gateway; attach the server to the network, or give its gateway with --network-gateway",
				pool, d.uplinkNames())
			continue
		}
		d.add(aggregate(pool, gateway, link), "", "all pods are behind the cloud network's gateway")
	}
}

// gateway finds the gateway of the network that the node's own InternalIP belongs to: a
// cloud's network is layer 3, so all addresses but the own one are behind its gateway.
func (d *decider) gateway(ipv4 bool) (netip.Addr, int, bool) {
	if d.Gateway.IsValid() && d.Gateway.Is4() == ipv4 {
		e, ok := d.lookup.route(d.Gateway, d.Gateway.BitLen())
		if ok && d.onUplink(e.Link) && !e.Via.IsValid() {
			return d.Gateway, e.Link, true
		}
		return netip.Addr{}, 0, false
	}
	var best Entry
	for _, e := range d.Table {
		if e.Ours() || e.Kind != Unicast || !e.Via.IsValid() || e.Dst.Bits() == 0 ||
			!d.onUplink(e.Link) || e.Dst.Addr().Is4() != ipv4 ||
			!slices.ContainsFunc(d.Node.InternalIPs, e.Dst.Contains) {
			continue
		}
		if !best.Via.IsValid() ||
			cmp.Or(-cmp.Compare(e.Dst.Bits(), best.Dst.Bits()), compareEntries(e, best)) < 0 {
			best = e
		}
	}
	return best.Via, best.Link, best.Via.IsValid()
}

func (d *decider) onUplink(index int) bool {
	return slices.ContainsFunc(d.uplinks, func(l Link) bool { return l.Index == index })
}

// merge joins prefixes, which don't overlap unless they are equal, into the fewest with the same
// addresses.
func merge(prefixes []netip.Prefix) []netip.Prefix {
	left := slices.Compact(slices.SortedFunc(slices.Values(prefixes), netip.Prefix.Compare))
	for i := 1; i < len(left); {
		a, b := left[i-1], left[i]
		both := netip.PrefixFrom(a.Addr(), a.Bits()-1).Masked()
		if a.Bits() != b.Bits() || !both.Contains(b.Addr()) {
			i++
			continue
		}
		left[i-1] = both
		left, i = slices.Delete(left, i, i+1), max(1, i-1)
	}
	return left
}
