package agent

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/routes"
)

// VSwitch connects dedicated servers with the cloud's network: they are on a segment in one of the
// network's subnets, with a gateway to the other subnets. The zero value means that there is none.
type VSwitch struct {
	Subnet  netip.Prefix
	Gateway netip.Addr
	// Pools are those of Settings.Pools within Subnet. PodCIDRs of dedicated servers are from
	// these pools. The cloud's network has no routes to them: its gateway resolves their pods
	// by ARP, like any host of the subnet.
	Pools []netip.Prefix
}

// vSwitchMTU is the largest packet that a vSwitch carries, in bytes
// (https://docs.hetzner.com/robot/dedicated-server/network/vswitch).
const vSwitchMTU = 1400

// holds reports whether a podCIDR is of a pool within the vSwitch's subnet.
func (v VSwitch) holds(podCIDR netip.Prefix) bool {
	return slices.ContainsFunc(v.Pools, func(pool netip.Prefix) bool {
		return pool.Bits() <= podCIDR.Bits() && pool.Contains(podCIDR.Addr())
	})
}

// dedicated reports whether this machine's IPv4 pods are hosts of the vSwitch's subnet, by its
// podCIDR or, until it has one, by its address.
func (d *decider) dedicated() bool {
	if at := slices.IndexFunc(d.Node.PodCIDRs, isIPv4); at >= 0 {
		return d.VSwitch.holds(d.Node.PodCIDRs[at])
	}
	return len(d.VSwitch.Pools) > 0 && slices.ContainsFunc(d.uplinks, d.onVSwitch)
}

func isIPv4(p netip.Prefix) bool { return p.Addr().Is4() }

// onVSwitch reports whether an interface has an address of the machine's own in the vSwitch's
// subnet: pods' interfaces have the podCIDR's first address.
func (d *decider) onVSwitch(l Link) bool {
	return slices.ContainsFunc(l.Addrs, func(p netip.Prefix) bool {
		return d.VSwitch.Subnet.Contains(p.Addr()) && !contain(d.Node.PodCIDRs, p.Addr())
	})
}

// acrossVSwitch adds the entries of a dedicated server: it answers ARP for its pods, reaches
// the pods of other dedicated servers through their machines, and those of cloud servers
// through the segment's gateway. While the segment is unknown, existing entries are kept.
func (d *decider) acrossVSwitch() {
	segment, problem := d.segment()
	if problem != "" {
		d.Faults = append(d.Faults, problem)
		d.holdVSwitch()
		return
	}
	if segment.MTU > vSwitchMTU {
		d.warn("%s has an MTU of %d, and the vSwitch drops packets of more than %d bytes; set it to %[3]d",
			segment.Name, segment.MTU, vSwitchMTU)
	}
	d.answer(segment, d.leadTo(d.segmentNodes(), fmt.Sprintf(
		"has no InternalIP in the vSwitch's subnet %s; set the kubelet's --node-ip to the address of its VLAN interface", d.VSwitch.Subnet)))
	for _, pool := range d.cloudPools() {
		e, ok := d.lookup.route(pool.Addr(), pool.Bits())
		if ok && e.Dst.Bits() > 0 && e.Via == d.VSwitch.Gateway && e.Link == segment.Index {
			continue // a route of the machine's own to the whole network
		}
		d.add(aggregate(pool, d.VSwitch.Gateway, segment.Index), "",
			"pods of cloud servers are behind the vSwitch's gateway")
	}
}

// segment returns the uplink on the vSwitch, or the reason why there is none.
func (d *decider) segment() (Link, string) {
	subnet, gateway := d.VSwitch.Subnet, d.VSwitch.Gateway
	found := slices.IndexFunc(d.Links, d.onVSwitch)
	uplinks := slices.DeleteFunc(slices.Clone(d.uplinks), func(l Link) bool { return !d.onVSwitch(l) })
	switch {
	case found < 0:
		return Link{}, fmt.Sprintf(
			"pods are hosts of the vSwitch's subnet %s, and no interface of this machine has an address there; add the vSwitch's VLAN interface with the server's address and an MTU of %d, and set the kubelet's --node-ip to that address",
			subnet, vSwitchMTU)
	case len(uplinks) == 0:
		return Link{}, fmt.Sprintf(
			"pods are hosts of the vSwitch's subnet %s, and %s, which has an address there, is no uplink; set the kubelet's --node-ip to that address, or add the interface with --uplink",
			subnet, d.Links[found].Name)
	}
	segment := uplinks[max(0, slices.IndexFunc(uplinks, func(l Link) bool {
		return slices.ContainsFunc(d.Node.InternalIPs, l.has)
	}))]
	for _, p := range []netip.Prefix{subnet, netip.PrefixFrom(gateway, gateway.BitLen())} {
		if e, ok := d.lookup.route(p.Addr(), p.Bits()); !ok || e.Kind != Unicast || e.Via.IsValid() ||
			e.Link != segment.Index {
			return Link{}, fmt.Sprintf(
				"%s of the vSwitch is not reached directly on %s; switch the interface on, and give it its address with the length of the subnet, /%d",
				p, segment.Name, subnet.Bits())
		}
	}
	return segment, ""
}

// segmentNodes returns the Nodes for planning routes to the pods of dedicated servers.
func (d *decider) segmentNodes() []routes.Node {
	return d.planned(true, func(n *kube.Node, p *routes.Node) {
		p.Dsts = slices.DeleteFunc(p.Dsts, func(dst netip.Prefix) bool { return !d.VSwitch.holds(dst) })
		p.Via = netip.Addr{}
		if at := slices.IndexFunc(n.InternalIPs, d.VSwitch.Subnet.Contains); at >= 0 {
			p.Via = n.InternalIPs[at]
		}
	})
}

// shortestAnswered is the prefix length of the largest podCIDR that ARP is answered for. The
// kernel keeps its entries in 16 lists (net/core/neighbour.c, pneigh_lookup), so the time to add
// them grows with the square of their number: 4,096 take a tenth of a second, 65,536 take 14.
const shortestAnswered = 18

// answer adds the own podCIDRs' proxy neighbor entries, without those in lost (an older Node's).
func (d *decider) answer(segment Link, lost []netip.Prefix) {
	for _, p := range d.Node.PodCIDRs {
		switch {
		case !d.VSwitch.holds(p), slices.Contains(lost, p):
			continue
		case p.Bits() < shortestAnswered:
			d.fault("podCIDR %s is too large to answer ARP for; give its pool a nodeMask of %d or more, then delete this Node and let it join again", p, shortestAnswered)
			continue
		}
		d.View.ProxyARP = append(d.View.ProxyARP, segment.Name)
		for a := p.Masked().Addr(); p.Contains(a); a = a.Next() {
			d.Answers = append(d.Answers, Proxy{Link: segment.Index, Addr: a, Protocol: Protocol})
		}
	}
}

// cloudPools returns the pools that the cloud's network has routes to, as the fewest prefixes.
func (d *decider) cloudPools() []netip.Prefix {
	return merge(slices.DeleteFunc(slices.Clone(d.Pools), func(p netip.Prefix) bool {
		return !p.Addr().Is4() || slices.Contains(d.VSwitch.Pools, p)
	}))
}

// holdVSwitch keeps the existing entries of the vSwitch.
func (d *decider) holdVSwitch() {
	own := slices.Clone(d.Node.PodCIDRs)
	for _, dup := range routes.Desired(d.segmentNodes(), nil).Duplicates {
		if dup.Node == d.Self {
			own = slices.DeleteFunc(own, func(p netip.Prefix) bool { return p == dup.Dst })
		}
	}
	d.staying = d.unclaimed(own)
	for _, pool := range d.cloudPools() {
		d.held[pool] = d.VSwitch.Gateway
	}
	for _, n := range d.Nodes {
		for _, p := range n.PodCIDRs {
			if n.Name != d.Self && d.VSwitch.holds(p) {
				d.held[p] = netip.Addr{}
			}
		}
	}
}
