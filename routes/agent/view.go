package agent

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/routes"
)

// findUplinks sets the interfaces between nodes.
func (d *decider) findUplinks() {
	for _, l := range d.Links {
		named := slices.Contains(d.Uplinks, l.Name)
		own := len(d.Uplinks) == 0 && slices.ContainsFunc(d.Node.InternalIPs, l.has)
		if named || own {
			d.uplinks = append(d.uplinks, l)
		}
	}
	for _, name := range d.Uplinks {
		if !slices.ContainsFunc(d.uplinks, func(l Link) bool { return l.Name == name }) {
			d.fault("--uplink %s: this machine has no such interface", name)
		}
	}
	if len(d.Uplinks) == 0 && len(d.uplinks) == 0 {
		addrs := make([]string, len(d.Node.InternalIPs))
		for i, a := range d.Node.InternalIPs {
			addrs[i] = a.String()
		}
		d.fault("no interface of this machine has an InternalIP of its Node (%s); correct the kubelet's --node-ip, or name the interfaces with --uplink",
			cmp.Or(strings.Join(addrs, ", "), "none"))
	}
}

func (d *decider) fillView() {
	v := &d.View
	v.PodCIDRs, v.MTU = slices.Clone(d.Node.PodCIDRs), d.smallestMTU()
	for _, n := range d.Nodes {
		v.ClusterPods = append(v.ClusterPods, n.PodCIDRs...)
		v.InternalIPs = append(v.InternalIPs, d.believed(n, n.InternalIPs)...)
		v.ExternalIPs = append(v.ExternalIPs, d.believed(n, n.ExternalIPs)...)
		v.ServerPrefixes = append(v.ServerPrefixes, d.serverPrefixes(n)...)
	}
	for _, p := range d.PodRanges {
		// Public IPv6 is not masqueraded, and only Nodes' podCIDRs pass the filter.
		if p.Addr().Is4() || p.Addr().IsPrivate() {
			v.ClusterPods = append(v.ClusterPods, p)
		}
	}
	for _, prefixes := range []*[]netip.Prefix{&v.ClusterPods, &v.ServerPrefixes} {
		slices.SortFunc(*prefixes, netip.Prefix.Compare)
		*prefixes = slices.Compact(*prefixes)
	}
	for _, addrs := range []*[]netip.Addr{&v.InternalIPs, &v.ExternalIPs} {
		slices.SortFunc(*addrs, netip.Addr.Compare)
		*addrs = slices.Compact(*addrs)
	}
	for _, l := range d.Links {
		ipv4 := func(a netip.Addr) bool { return a.Is4() && l.has(a) }
		if d.onUplink(l.Index) &&
			(len(d.Uplinks) > 0 || slices.ContainsFunc(d.Node.InternalIPs, ipv4)) {
			v.IPv4Uplinks = append(v.IPv4Uplinks, l.Name)
		}
		advertised := func(e Entry) bool { return e.Protocol == protocolRA && e.Link == l.Index }
		if slices.ContainsFunc(d.Table, advertised) {
			v.RouterAdvertised = append(v.RouterAdvertised, l.Name)
		}
	}
	if d.Tunnels.Enabled && d.Devices[0].Problem == "" {
		for _, device := range d.Devices {
			v.Tunnels = append(v.Tunnels, TunnelLink(device.Port))
		}
		v.TunnelMTU = d.TunnelPlans[0].MTU
		phase := d.Tunnels.Phase
		v.TunnelMixed = phase == routes.AcceptTunnels || phase == routes.PreferTunnels
		if d.Node.Reach != "" || phase != "" {
			v.MTU = d.TunnelPlans[0].MTU
		}
	}
	v.TunnelOnly = d.Tunnels.Enabled && d.Tunnels.Phase == routes.RequireTunnels
	slices.Sort(v.IPv4Uplinks)
	slices.Sort(v.RouterAdvertised)
}

// serverPrefixes returns the prefixes that the Node's own podCIDRs are cut from. The Node may
// not report which address in them the machine itself has.
func (d *decider) serverPrefixes(n *kube.Node) []netip.Prefix {
	if d.Modes.IPv6 != routes.Natively {
		return nil
	}
	var found []netip.Prefix
	for _, p := range n.PodCIDRs {
		cut := slices.ContainsFunc(d.Pools, func(pool netip.Prefix) bool { return pool.Overlaps(p) })
		if p.Addr().Is6() && p.Bits() > ownPrefixBits && !cut {
			found = append(found, netip.PrefixFrom(p.Addr(), ownPrefixBits).Masked())
		}
	}
	return found
}

// ownPrefixBits is the length of the prefix that the provider routes to a server.
const ownPrefixBits = 64
