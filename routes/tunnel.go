package routes

import (
	"fmt"
	"net/netip"
)

// Tunnels is the configuration of tunnels between nodes.
type Tunnels struct {
	// Enabled means that tunnels connect at least the nodes without a route, Required that
	// nodes use nothing else.
	Enabled, Required bool
}

// TunnelPhase is a step from plain routes to tunnels between all nodes. Nodes in adjacent phases
// reach each other.
type TunnelPhase string

const (
	AcceptTunnels  TunnelPhase = "accept"  // receive through tunnels, send plainly
	PreferTunnels  TunnelPhase = "prefer"  // send through tunnels that have shaken hands
	RequireTunnels TunnelPhase = "require" // send and receive through tunnels only
)

// Reach is why a node is connected by tunnels rather than by the table; empty if it is not.
type Reach string

const (
	// NoRoom means that the table had no room for the node's routes. It is permanent until it
	// is removed: a tunnel is not replaced whenever another node's route is deleted.
	NoRoom Reach = "no-room"
	// NoNetwork means that the node's machine is not in the network.
	NoNetwork Reach = "no-network"
)

// Tunneled reports whether a tunnel connects the pods of two nodes: the table does only if it
// leads to both, because replies need a route too. The result is the same on both sides.
func Tunneled(a, b Reach) bool { return a != "" || b != "" }

// Reasons of NetworkUnavailable for nodes with a Reach.
const (
	TunnelCreated Reason = "TunnelCreated"
	NoTunnel      Reason = "NoTunnel"
)

// NewReach returns the nodes to be connected by tunnels from now on, by name: those without room
// in the table, those of other providers' machines, and those of machines outside the network that
// have a public InternalIP, which a kubelet has only on purpose (--node-ip).
func (d Decision) NewReach() map[string]Reach {
	found := map[string]Reach{}
	if !d.Tunnels.Enabled {
		return found
	}
	// While routes are to be deleted, or it is unknown which, there may be room soon.
	full := d.Changes.Count(Delete) == 0 && d.Gateways.Doubt == nil
	for _, r := range d.Plan.Refused {
		if full && r.Cause == Full {
			found[r.Node] = NoRoom
		}
	}
	for _, n := range d.Nodes {
		if n.Reach == "" && n.Allocated && n.Outside() {
			found[n.Name] = NoNetwork
		}
	}
	return found
}

// Outside reports whether the node needs a route, its machine is known and can't have one, and is
// another provider's or has a public address as the node's first IPv4 InternalIP.
func (n Node) Outside() bool {
	switch {
	case n.Via.IsValid() || len(n.Dsts) == 0:
		return false
	case n.Missing.Elsewhere:
		return true
	case !n.Missing.Detached && !n.Missing.Unroutable:
		return false
	}
	for _, a := range n.InternalIPs {
		if a.Is4() {
			return !a.IsPrivate()
		}
	}
	return false
}

func (o outlook) tunnelStatus(n Node) NodeStatus {
	if d, ok := o.duplicate(n.Name, n.Dsts); ok {
		return duplicate(d)
	}
	why := "the traffic between nodes is encrypted"
	switch n.Reach {
	case NoRoom:
		why = "the network's route table had no room"
	case NoNetwork:
		why = "the machine is not in the network"
	}
	if n.Connected {
		return NodeStatus{
			Reachable: true, Reason: TunnelCreated,
			Message: fmt.Sprintf("%s routed through WireGuard tunnels: %s", join(n.Dsts), why),
		}
	}
	return NodeStatus{
		Reason: NoTunnel,
		Message: "waiting for WireGuard tunnels to all Ready nodes: " + why +
			"; PeersReachable has details",
	}
}

func (o outlook) duplicate(node string, dsts []netip.Prefix) (Duplicate, bool) {
	for _, dst := range dsts {
		if d, ok := o.lost[nodeDst{node, dst}]; ok {
			return d, true
		}
	}
	return Duplicate{}, false
}
