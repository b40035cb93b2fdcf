package agent

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// aggregates adds the routes to all pods through the cloud network's gateway: none for
// addresses that a route of the machine sends there already, because they are inside the
// network's range, else one route for each contiguous range of the pools, which is nearly
// always one. While the gateway is unknown, existing routes are kept.
func (d *decider) aggregates(ipv4 bool) {
	var pools []netip.Prefix
	for _, p := range d.Pools {
		if p.Addr().Is4() == ipv4 {
			pools = append(pools, p)
		}
	}
	for _, pool := range merge(pools) {
		if e, ok := d.lookup.route(pool.Addr(), pool.Bits()); ok && e.Dst.Bits() > 0 && e.Via.IsValid() &&
			d.onUplink(e.Link) {
			continue
		}
		gateway, link, ok := d.gateway(ipv4)
		if !ok {
			// For example while a DHCP client restarts. Without the existing routes, packets
			// for pods would leave through the default route.
			d.held[pool] = d.Gateway
			d.faults = append(d.faults, fmt.Sprintf(
				"pods' %s has no gateway: no interface of the uplinks %s has a route to the cloud's network through its gateway; attach the server to the network, or give its gateway with --network-gateway",
				pool, d.uplinkNames()))
			continue
		}
		d.want = append(d.want, WantedEntry{
			aggregate(pool, gateway, link), "", "all pods are behind the cloud network's gateway",
		})
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
			!d.onUplink(e.Link) || e.Dst.Addr().Is4() != ipv4 {
			continue
		}
		if !slices.ContainsFunc(d.self.InternalIPs, e.Dst.Contains) {
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

// merge joins prefixes into the fewest with the same addresses.
func merge(prefixes []netip.Prefix) []netip.Prefix {
	left := slices.Clone(prefixes)
	for {
		slices.SortFunc(left, netip.Prefix.Compare)
		var joined []netip.Prefix
		for _, p := range left {
			last := len(joined) - 1
			switch {
			case last >= 0 && joined[last].Overlaps(p): // the wider of two sorts first
			case last >= 0 && siblings(joined[last], p):
				joined[last] = netip.PrefixFrom(p.Addr(), p.Bits()-1).Masked()
			default:
				joined = append(joined, p)
			}
		}
		if len(joined) == len(left) {
			return joined
		}
		left = joined
	}
}

func siblings(a, b netip.Prefix) bool {
	return a.Bits() == b.Bits() && a.Bits() > 0 && a.Addr().Is4() == b.Addr().Is4() &&
		netip.PrefixFrom(a.Addr(), a.Bits()-1).Masked() == netip.PrefixFrom(b.Addr(), b.Bits()-1).Masked()
}
