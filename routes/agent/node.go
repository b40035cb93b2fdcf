package agent

import (
	"net/netip"
	"slices"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/routes"
)

// Mode is how packets of one family are routed to the pods of another node.
type Mode string

// The modes, named as in the configuration.
const (
	ByNodes  Mode = "node"   // kernel routes to every peer
	ByCloud  Mode = "cloud"  // the cloud network's table, behind an aggregate route
	Natively Mode = "native" // the provider routes each server's own prefix
	Unrouted Mode = "none"   // not routed by Underlay
)

// Modes are the modes of both families.
type Modes struct{ IPv4, IPv6 Mode }

func (m Modes) of(ipv4 bool) Mode {
	if ipv4 {
		return m.IPv4
	}
	return m.IPv6
}

// Any reports whether a family has the mode.
func (m Modes) Any(mode Mode) bool { return m.IPv4 == mode || m.IPv6 == mode }

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
