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

// Taints of nodes that are about to go: of the cluster autoscaler and of Karpenter.
func leavingTaints() []string {
	return []string{"ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"}
}

// member is a node as far as addresses are concerned.
type member struct {
	name, providerID string
	ready, leaving   bool
	// unheard: the API server does not hear its kubelet. spared: it keeps what it holds all the same.
	unheard, spared bool
	addresses       []netip.Addr
	// unfit says why it may hold nothing, as a reason of a move; empty: nothing speaks against it.
	unfit   string
	reports bool // it told of itself
	report  addresses.Report
}

// Why an address may not be where it is, as values of the label reason of moves.
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

// memberOf reads a Node. A report that cannot be read is none.
func memberOf(node *corev1.Node) member {
	m := member{name: node.Name, providerID: node.Spec.ProviderID, ready: kube.Ready(node), unheard: unknown(node), addresses: own(node)}
	text := node.Annotations[addresses.ReportAnnotation]
	report, err := addresses.ParseReport(text)
	m.reports, m.report = text != "" && err == nil, report
	switch {
	case !node.DeletionTimestamp.IsZero():
		m.unfit = whyGone
	case kube.Excluded(node):
		m.unfit = whyExcluded
	case report.Unfit != "":
		m.unfit = whyUnfit
	case !m.ready:
		m.unfit = whyNotReady
	}
	m.leaving = node.Spec.Unschedulable || slices.ContainsFunc(leavingTaints(), func(key string) bool { return kube.Tainted(node, key) })
	return m
}

// own are the addresses of a machine: as many as count, because its kubelet reports them itself and
// could report all of a pool.
func own(node *corev1.Node) []netip.Addr {
	return counted(slices.Concat(kube.InternalIPs(node), kube.ExternalIPs(node)))
}

// counted are the first of what a Node reports, as many as count.
func counted[T any](all []T) []T { return all[:min(len(all), kube.MostReported)] }

// fleet is all nodes, and what they say of each other.
type fleet struct {
	members []member // by name
	health  *health
	routers map[string]Routing
	now     time.Time
}

func newFleet(nodes []*corev1.Node, h *health, routers map[string]Routing, now time.Time) fleet {
	f := fleet{health: h, routers: routers, now: now}
	for _, n := range nodes {
		f.members = append(f.members, memberOf(n))
	}
	slices.SortFunc(f.members, func(a, b member) int { return strings.Compare(a.name, b.name) })
	h.learn(&f)
	return f
}

// taken are the addresses of nodes, and those at the edges of their segments that no machine can
// have. Who takes one of a node's for a Service takes the node's.
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

// watching are the nodes that watch others.
func (f fleet) watching() (names []string) {
	for _, m := range f.members {
		if m.ready {
			names = append(names, m.name)
		}
	}
	return names
}

func (f fleet) member(name string) (member, bool) {
	i, found := slices.BinarySearchFunc(f.members, name, func(m member, name string) int { return strings.Compare(m.name, name) })
	if !found {
		return member{}, false
	}
	return f.members[i], true
}

// eligible says which nodes may hold an address.
//
// Where no node may that is heard, those that are not heard may, but for a holder that is one of them:
// it keeps the address. That none is heard says more of what is between the nodes, such as a packet
// filter that lets no checks through, than of each of them, and who comes next is no better. So it is
// with those that a provider refuses to lead an address to.
//
// Those that were not heard a while ago keep what they hold, and get an address before it goes to one
// that is not heard now.
func (f fleet) eligible(e addresses.Entry, p Pool, serving serving) addresses.Eligible {
	may := addresses.Eligible{Together: p.Mover == MoverBGP}
	var recovering, last []string
	for _, m := range f.members {
		switch why := f.whyNot(m, e, p, serving); {
		case why == whySilent && !m.spared, why == whyRefused && f.health.unrouted(m.name, e.Address):
			last = append(last, m.name)
		case why != "":
		case m.spared:
			may.Keeping = append(may.Keeping, m.name)
		case m.leaving, e.Local() && !serving.ready[m.name]:
			may.Leaving = append(may.Leaving, m.name)
		case !may.Together && e.Holder != m.name && f.silent(m, e, p, serving, true):
			recovering = append(recovering, m.name)
		default:
			may.Nodes = append(may.Nodes, m.name)
		}
	}
	if len(may.Nodes)+len(may.Leaving) == 0 && !slices.Contains(may.Keeping, e.Holder) {
		may.Nodes = recovering
	}
	if len(may.Nodes)+len(may.Leaving) == 0 && !slices.Contains(last, e.Holder) && !slices.Contains(may.Keeping, e.Holder) {
		may.Nodes = last
	}
	return may
}

// whyNot says why a node may not hold an address; empty: it may.
func (f fleet) whyNot(m member, e addresses.Entry, p Pool, serving serving) string {
	routing, routed := f.routers[p.Mover]
	answers := p.Mover == MoverLayer2 || routing.Answering
	switch {
	case m.unfit != "":
		return m.unfit
	case (!routed || answers) && !m.reports:
		return whyNoReport
	case routed && (m.providerID == "" || routing.Serves != nil && !routing.Serves(m.providerID)):
		return whyProvider
	case e.Local() && !serving.on(m):
		return whyEndpoints
	case p.Mover == MoverLayer2 && !m.report.OnSegment(e.Address), f.health.refused(m.name, e.Address, p.Mover):
		return whyRefused
	case f.silent(m, e, p, serving, false):
		return whySilent
	}
	return ""
}

// asked are the ports by which a node says whether it serves an address. Where endpoints end and none
// is ready, kube-proxy serves and says at the Service's port that it does not.
func (f fleet) asked(m member, e addresses.Entry, p Pool, serving serving) []int {
	ports := []int{addresses.ProxyPort}
	if serving.ready[m.name] || !serving.ending[m.name] {
		ports = append(ports, e.Check())
	}
	if p.Mover == MoverLayer2 || f.routers[p.Mover].Answering {
		ports = append(ports, addresses.AgentPort)
	}
	return ports
}

// silent reports whether a node does not answer for an address, or, with lately, did not a while ago.
func (f fleet) silent(m member, e addresses.Entry, p Pool, serving serving, lately bool) bool {
	return slices.ContainsFunc(f.asked(m, e, p, serving), func(port int) bool {
		now, was := f.health.silent(m.name, port)
		return now || lately && was
	})
}

// serving are the nodes that have endpoints of a Service: such as take traffic, and such as do
// while they end, where the node has no others. That is kube-proxy's rule for policy Local.
type serving struct {
	ready, ending map[string]bool
	// others are neither, as all are on a node that is not heard.
	others map[string]bool
}

// on reports whether a node has endpoints.
func (s serving) on(m member) bool {
	return s.ready[m.name] || s.ending[m.name] || m.spared && s.others[m.name]
}

// servingOf reads the slices of a Service for one family.
func servingOf(all []*discoveryv1.EndpointSlice, f addresses.Family) serving {
	s := serving{map[string]bool{}, map[string]bool{}, map[string]bool{}}
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
			switch {
			case e.NodeName == nil:
			case is(e.Conditions.Ready, true):
				s.ready[*e.NodeName] = true
			case is(e.Conditions.Serving, false) && is(e.Conditions.Terminating, false):
				s.ending[*e.NodeName] = true
			case !is(e.Conditions.Terminating, false):
				s.others[*e.NodeName] = true
			}
		}
	}
	return s
}
