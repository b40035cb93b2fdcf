package routes

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Reason is that of NetworkUnavailable. The first two are the Kubernetes route controller's.
type Reason string

const (
	RouteCreated   Reason = "RouteCreated"
	NoRouteCreated Reason = "NoRouteCreated"
	RouteTableFull Reason = "RouteTableFull"
	NotAttached    Reason = "NotAttached"
	NotInVSwitch   Reason = "NotInVSwitch"
)

// NodeStatus is the result for a node's condition and Events.
type NodeStatus struct {
	// Reachable means that all routes exist, and that the vSwitch's gateway resolves the rest.
	Reachable bool
	Reason    Reason
	// Unproved means that nothing contradicts an earlier Reachable, which is kept.
	Unproved bool
	// LookAgain means that the table as last listed makes the node reachable, but its routes
	// may be those of a deleted node of the same name: list it again.
	LookAgain bool
	// Event is the reason of the Event to send; empty for none.
	Event string
	// Message is for users and never compared.
	Message string
}

// Reasons of Events only.
const (
	EventRouteAmbiguous   = "RouteAmbiguous"
	EventDuplicatePodCIDR = "DuplicatePodCIDR"
	EventForeignPodCIDR   = "ForeignPodCIDR"
	EventProviderIDShared = "ProviderIDShared"
)

// NodeStatuses returns, by name, whether the current table makes each node reachable, and if
// not, what is missing. A node without podCIDRs that need this table is reachable.
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

// outlook is the lookup state for all nodes.
type outlook struct {
	have    []Route
	stands  map[netip.Prefix]Route // by destination
	refused map[nodeDst]Refusal
	lost    map[nodeDst]Duplicate
}

func (o outlook) nodeStatus(n Node) NodeStatus {
	if !n.Allocated {
		return NodeStatus{Reason: NoRouteCreated, Message: "waiting for a podCIDR"}
	}
	if n.Reach != "" || n.Encrypted {
		return o.tunnelStatus(n)
	}
	if v, ok := o.insideStatus(n); !ok {
		return v
	}
	if len(n.Dsts) > 0 && !n.Via.IsValid() {
		// A route to the node exists, and only its server was not found.
		allToward := !slices.ContainsFunc(n.Dsts, func(dst netip.Prefix) bool {
			_, stands := o.stands[dst]
			return !stands
		})
		return NodeStatus{
			Reason: NotAttached, Event: string(NotAttached), Message: n.Missing.Reason,
			Unproved: allToward && !n.Missing.Detached,
		}
	}
	if d, ok := o.duplicate(n.Name, n.Dsts); ok {
		return duplicate(d)
	}
	for _, dst := range n.Dsts {
		key := nodeDst{n.Name, dst}
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
		return NodeStatus{
			Reason: NoRouteCreated, Message: fmt.Sprintf("route %s does not stand yet", needed.Route),
		}
	}
	if n.Unseen && len(n.Dsts) > 0 {
		return NodeStatus{
			Reason: NoRouteCreated, Unproved: true, LookAgain: true,
			Message: "looking whether the route stands",
		}
	}
	status := NodeStatus{Reachable: true, Reason: RouteCreated, Message: created(n)}
	if n.SameServer != "" {
		status.Event, status.Message = EventProviderIDShared, status.Message+"; "+sameServer(n)
	}
	return status
}

func sameServer(n Node) string {
	return fmt.Sprintf(
		"Node %s has the same provider ID, and one server is routed for one Node; delete the Node of the machine that is gone, or have a cloned machine join with the ID of its own server", n.SameServer)
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
		return fmt.Sprintf("%s lies inside the vSwitch's subnet %s and needs no route", join(n.Inside),
			n.Subnet)
	case len(n.Dsts) == 0:
		return "no podCIDR of this node needs a route of the network"
	}
	return fmt.Sprintf("%s routed via %s", join(n.Dsts), n.Via)
}

func join[T fmt.Stringer](all []T) string {
	texts := make([]string, len(all))
	for i, one := range all {
		texts[i] = one.String()
	}
	return strings.Join(texts, ", ")
}
