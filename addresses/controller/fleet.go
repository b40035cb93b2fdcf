package controller

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/internal/kube"
)

// leavingTaints are set by the cluster autoscaler and Karpenter on nodes that they will remove.
func leavingTaints() []string {
	return []string{"ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"}
}

type member struct {
	name, providerID string
	ready, leaving   bool
	// unknown is set if the Ready condition is Unknown, exempt if the node is exempt from that.
	unknown, exempt bool
	addresses       []netip.Addr
	// ineligible is the reason why the node may hold no address; empty if it may.
	ineligible string
	reports    bool // its report could be read
	report     addresses.Report
}

// Reasons against the holder of an address, as values of the label reason of the metric of moves.
const (
	whyGone      = "node-gone"
	whyNotReady  = "node-not-ready"
	whyExcluded  = "node-excluded"
	whyUnfit     = "node-unfit"
	whyNoReport  = "node-without-agent"
	whySilent    = "node-silent"
	whyRefused   = "node-refused"
	whyEndpoints = "no-endpoint"
	whyProvider  = "node-of-other-provider"
	whyDraining  = "node-draining"
	whyAssigned  = "assigned"
	whyReleased  = "released"
	whyBalanced  = "balanced"
)

// memberOf reads a Node. An invalid report is ignored.
func memberOf(node *corev1.Node) member {
	m := member{
		name: node.Name, providerID: node.Spec.ProviderID, addresses: own(node),
		ready: kube.Ready(node), unknown: unknown(node),
	}
	text := node.Annotations[addresses.ReportAnnotation]
	report, err := addresses.ParseReport(text)
	m.reports, m.report = text != "" && err == nil, report
	switch {
	case !node.DeletionTimestamp.IsZero():
		m.ineligible = whyGone
	case kube.Excluded(node):
		m.ineligible = whyExcluded
	case report.Unfit != "":
		m.ineligible = whyUnfit
	case !m.ready:
		m.ineligible = whyNotReady
	}
	m.leaving = node.Spec.Unschedulable ||
		slices.ContainsFunc(leavingTaints(), func(key string) bool { return kube.Tainted(node, key) })
	return m
}

// own returns a node's addresses, limited because a kubelet could report all addresses of a pool.
func own(node *corev1.Node) []netip.Addr {
	return counted(slices.Concat(kube.InternalIPs(node), kube.ExternalIPs(node)))
}

func counted[T any](all []T) []T { return all[:min(len(all), kube.MostReported)] }

// fleet is the state of all nodes, including their reports about each other.
type fleet struct {
	members []member // sorted by name
	health  health
	routers map[addresses.Mover]Routing
	now     time.Time
}

func newFleet(
	nodes []*corev1.Node, h health, routers map[addresses.Mover]Routing, now time.Time,
) fleet {
	f := fleet{health: h, routers: routers, now: now}
	for _, n := range nodes {
		f.members = append(f.members, memberOf(n))
	}
	slices.SortFunc(f.members, func(a, b member) int { return strings.Compare(a.name, b.name) })
	h.learn(&f)
	return f
}

// taken returns the addresses that Services must not get: those of nodes, as a Service would take
// over the node's traffic, and the edges of the nodes' segments, which no host can have.
func (f fleet) taken() (all []netip.Addr) {
	segments := make(map[netip.Prefix]bool)
	for _, m := range f.members {
		all = append(all, m.addresses...)
		for _, s := range counted(m.report.Segments) {
			segments[s.Masked()] = true
		}
	}
	for s := range segments {
		all = append(all, addresses.Edges(s)...)
	}
	return all
}

func (f fleet) reports() map[string]addresses.Report {
	all := make(map[string]addresses.Report)
	for _, m := range f.members {
		if m.reports {
			all[m.name] = m.report
		}
	}
	return all
}

func (f fleet) watching() (names []string) {
	for _, m := range f.members {
		if m.ready {
			names = append(names, m.name)
		}
	}
	return names
}

func (f fleet) member(name string) (member, bool) {
	i, found := slices.BinarySearchFunc(f.members, name, func(m member, name string) int {
		return strings.Compare(m.name, name)
	})
	if !found {
		return member{}, false
	}
	return f.members[i], true
}

// eligible returns the nodes that may hold an address.
//
// Unresponsive nodes are the last choice: if all are, the cause is more likely between the nodes,
// such as a packet filter that drops the checks, and another node would be no better. The same
// applies to nodes to which a provider refuses to route the address. Recently unresponsive nodes
// keep their addresses.
func (f fleet) eligible(e addresses.Entry, p Pool, serving serving) addresses.Eligible {
	may := addresses.Eligible{Together: p.Mover == addresses.BGP}
	for _, m := range f.members {
		nodes := &may.Nodes
		switch why := f.ineligibleReason(m, e, p, serving); {
		case why == whySilent && !m.exempt, why == whyRefused && f.health[m.name].unrouted(e.Address):
			nodes = &may.Last
		case why != "":
			continue
		case m.exempt:
			nodes = &may.Keeping
		case e.Local() && serving[m.name] != readyEndpoint:
			nodes = &may.Ending
		case m.leaving:
			nodes = &may.Leaving
		case !may.Together && e.Holder != m.name && f.silent(m, e, p, serving, true):
			nodes = &may.Recovering
		}
		*nodes = append(*nodes, m.name)
	}
	return may
}

// ineligibleReason returns the reason why a node may not hold an address, or "".
func (f fleet) ineligibleReason(m member, e addresses.Entry, p Pool, serving serving) string {
	routing, routed := f.routers[p.Mover]
	replies := p.Mover == addresses.Layer2 || routing.Answering
	switch {
	case m.ineligible != "":
		return m.ineligible
	case (!routed || replies) && !m.reports:
		return whyNoReport
	case routed && (m.providerID == "" || routing.Serves != nil && !routing.Serves(m.providerID)):
		return whyProvider
	case e.Local() && !serving.on(m):
		return whyEndpoints
	case p.Mover == addresses.Layer2 && !m.report.OnSegment(e.Address),
		f.health.refused(m.name, e.Address, p.Mover):
		return whyRefused
	case f.silent(m, e, p, serving, false):
		return whySilent
	}
	return ""
}

// ports returns the ports at which a node reports whether it serves an address. If only terminating
// endpoints are left, kube-proxy serves it but the Service's port reports that it does not.
func (f fleet) ports(m member, e addresses.Entry, p Pool, serving serving) []int {
	ports := []int{addresses.ProxyPort}
	if serving[m.name] != endingEndpoint {
		ports = append(ports, e.Check())
	}
	if p.Mover == addresses.Layer2 || f.routers[p.Mover].Answering {
		ports = append(ports, addresses.AgentPort)
	}
	return ports
}

// silent reports whether a node is unresponsive for an address, or with lately, was recently.
func (f fleet) silent(m member, e addresses.Entry, p Pool, serving serving, lately bool) bool {
	n := f.health[m.name]
	return slices.ContainsFunc(f.ports(m, e, p, serving), func(port int) bool {
		_, was := n.silentAt[port]
		return slices.Contains(n.silent, port) || lately && was
	})
}

// serving has the best endpoint of a Service on each node with endpoints.
type serving map[string]endpointState

type endpointState int

const (
	// otherEndpoint is neither of the following, as all endpoints of an unreachable node.
	otherEndpoint endpointState = iota + 1
	// endingEndpoint serves while it terminates: kube-proxy uses it with policy Local if the node
	// has no ready endpoint.
	endingEndpoint
	readyEndpoint
)

func (s serving) on(m member) bool {
	return s[m.name] >= endingEndpoint || m.exempt && s[m.name] == otherEndpoint
}

func servingOf(all []*discoveryv1.EndpointSlice, f addresses.Family) serving {
	s := make(serving)
	kind := discoveryv1.AddressTypeIPv6
	if f == addresses.IPv4 {
		kind = discoveryv1.AddressTypeIPv4
	}
	is := func(condition *bool, unset bool) bool {
		return condition == nil && unset || condition != nil && *condition
	}
	for _, slice := range all {
		if slice.AddressType != kind {
			continue
		}
		for _, e := range slice.Endpoints {
			state := endpointState(0)
			switch {
			case e.NodeName == nil:
				continue
			case is(e.Conditions.Ready, true):
				state = readyEndpoint
			case is(e.Conditions.Serving, false) && is(e.Conditions.Terminating, false):
				state = endingEndpoint
			case !is(e.Conditions.Terminating, false):
				state = otherEndpoint
			default:
				continue
			}
			s[*e.NodeName] = max(s[*e.NodeName], state)
		}
	}
	return s
}
