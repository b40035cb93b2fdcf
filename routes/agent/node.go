package agent

import (
	"net/netip"
	"slices"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/routes"
)

// planned converts the Nodes for package routes, for the routes of one family, and adapts each.
func (d *decider) planned(ipv4 bool, adapt func(*kube.Node, *routes.Node)) []routes.Node {
	all := make([]routes.Node, len(d.Nodes))
	for i, n := range d.Nodes {
		p := &all[i]
		*p = routes.Node{
			Name: n.Name, Allocated: len(n.PodCIDRs) > 0,
			ControlPlane: n.ControlPlane, Ready: n.Ready, Created: n.Created.Time,
		}
		for _, dst := range n.PodCIDRs {
			if dst.Addr().Is4() == ipv4 {
				p.Dsts = append(p.Dsts, dst)
			}
		}
		at := slices.IndexFunc(n.InternalIPs, func(a netip.Addr) bool { return a.Is4() == ipv4 })
		if at >= 0 {
			p.Via = n.InternalIPs[at]
		}
		adapt(n, p)
	}
	return all
}
