package routes

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Reason is the reason of the NetworkUnavailable condition. The first two are
// those of the route controller that Kubernetes' users know.
type Reason string

const (
	RouteCreated   Reason = "RouteCreated"
	NoRouteCreated Reason = "NoRouteCreated"
	RouteTableFull Reason = "RouteTableFull"
	NotAttached    Reason = "NotAttached"
	NotInVSwitch   Reason = "NotInVSwitch"
)

// NodeStatus is what a node is told about its routes.
type NodeStatus struct {
	// Reachable: all the node's routes stand, and the vSwitch's gateway finds what
	// needs none.
	Reachable bool
	Reason    Reason
	// Unproved: nothing is known against an earlier status that the node is
	// reachable, so that one holds.
	Unproved bool
	// LookAgain: the table as it was last seen makes the node reachable, and a
	// node of that name may have been meant that is gone.
	LookAgain bool
	// Event is the reason of the Event that people are to get; empty for none.
	Event string
	// Message is for people and never compared.
	Message string
}

// Reasons of Events that are no reasons of a condition.
const (
	EventRouteAmbiguous   = "RouteAmbiguous"
	EventDuplicatePodCIDR = "DuplicatePodCIDR"
	EventForeignPodCIDR   = "ForeignPodCIDR"
	EventProviderIDShared = "ProviderIDShared"
)

// NodeStatuses says of every node whether the table, as it stands, makes it reachable,
// and if not, what it waits for. A node whose podCIDRs all travel another way
// than through this table is reachable.
func NodeStatuses(nodes []Node, have []Route, w Wanted, p Plan) map[string]NodeStatus {
	o := outlook{
		have: have, stands: make(map[netip.Prefix]Route, len(have)),
		refused: map[nodeDst]Refusal{}, lost: map[nodeDst]Duplicate{},
	}
	for _, r := range have {
		o.stands[r.Dst] = r
	}
	for _, r := range p.Refused {
		o.refused[nodeDst{r.Node, r.Dst}] = r
	}
	for _, d := range w.Duplicates {
		o.lost[nodeDst{d.Node, d.Dst}] = d
	}
	statuses := make(map[string]NodeStatus, len(nodes))
	for _, n := range nodes {
		statuses[n.Name] = o.nodeStatus(n)
	}
	return statuses
}

// outlook is what is known of all nodes' routes.
type outlook struct {
	have    []Route
	stands  map[netip.Prefix]Route // have by destination
	refused map[nodeDst]Refusal
	lost    map[nodeDst]Duplicate
}

func (o outlook) nodeStatus(n Node) NodeStatus {
	if !n.Allocated {
		return NodeStatus{Reason: NoRouteCreated, Message: "waiting for a podCIDR"}
	}
	if v, ok := o.insideStatus(n); !ok {
		return v
	}
	if len(n.Dsts) > 0 && !n.Via.IsValid() {
		// A route toward the node stands, and only its server isn't seen.
		allToward := !slices.ContainsFunc(n.Dsts, func(dst netip.Prefix) bool { _, stands := o.stands[dst]; return !stands })
		return NodeStatus{
			Reason: NotAttached, Event: string(NotAttached), Message: n.Missing.Reason,
			Unproved: allToward && !n.Missing.Detached,
		}
	}
	for _, dst := range n.Dsts {
		key := nodeDst{n.Name, dst}
		if d, ok := o.lost[key]; ok {
			return duplicate(d)
		}
		needed := NodeRoute{Route: Route{Dst: dst, Via: n.Via}, Aliases: n.Aliases}
		if r, ok := o.stands[dst]; ok && needed.MetBy(r) {
			continue
		}
		if r, ok := o.refused[key]; ok {
			return refusal(r)
		}
		if n.Unrouted {
			return NodeStatus{Reason: NoRouteCreated, Event: EventProviderIDShared, Message: sameServer(n)}
		}
		return NodeStatus{Reason: NoRouteCreated, Message: fmt.Sprintf("route %s does not stand yet", needed.Route)}
	}
	if n.Unseen && len(n.Dsts) > 0 {
		return NodeStatus{Reason: NoRouteCreated, Unproved: true, LookAgain: true, Message: "looking whether the route stands"}
	}
	status := NodeStatus{Reachable: true, Reason: RouteCreated, Message: created(n)}
	if n.SameServer != "" {
		status.Event, status.Message = EventProviderIDShared, status.Message+"; "+sameServer(n)
	}
	return status
}

func sameServer(n Node) string {
	return fmt.Sprintf(
		"Node %s has the same provider ID, and one server is routed for one Node; delete the Node whose machine is gone, or have a cloned machine join with the ID of its own server", n.SameServer)
}

func duplicate(d Duplicate) NodeStatus {
	return NodeStatus{Reason: NoRouteCreated, Event: EventDuplicatePodCIDR, Message: d.String()}
}

func refusal(r Refusal) NodeStatus {
	switch r.Cause {
	case Obstructed:
		return NodeStatus{Reason: NoRouteCreated, Event: EventRouteAmbiguous, Message: r.String()}
	case Outside:
		return NodeStatus{Reason: NoRouteCreated, Event: EventForeignPodCIDR, Message: r.String()}
	default:
		return NodeStatus{Reason: RouteTableFull, Event: string(RouteTableFull), Message: r.String()}
	}
}

func created(n Node) string {
	switch {
	case len(n.Inside) > 0:
		return fmt.Sprintf("%s lies inside the vSwitch's subnet %s and needs no route", join(n.Inside), n.Subnet)
	case len(n.Dsts) == 0:
		return "no podCIDR of this node needs a route of the network"
	}
	return fmt.Sprintf("%s routed via %s", join(n.Dsts), n.Via)
}

func join(ps []netip.Prefix) string {
	s := make([]string, len(ps))
	for i, p := range ps {
		s[i] = p.String()
	}
	return strings.Join(s, ", ")
}
