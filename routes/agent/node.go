package agent

import (
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

// plannedNode converts a Node for package routes, for the routes of one family.
func plannedNode(n *kube.Node, ipv4 bool) routes.Node {
	planned := routes.Node{
		Name: n.Name, Allocated: len(n.PodCIDRs) > 0,
		ControlPlane: n.ControlPlane, Ready: n.Ready, Created: n.Created.Time,
	}
	for _, p := range n.PodCIDRs {
		if p.Addr().Is4() == ipv4 {
			planned.Dsts = append(planned.Dsts, p)
		}
	}
	for _, a := range n.InternalIPs {
		if a.Is4() == ipv4 {
			planned.Via = a
			break
		}
	}
	return planned
}
