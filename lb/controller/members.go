package controller

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/underlay-ccm/underlay/lb"
)

// A balancer is identified by an lb.Owner, the key of the queue: the load balancer of a single
// Service, or of the group of Services that share it. The owner is always computed from the
// Service and never stored, so it cannot be stale.

// KeyOf returns the owner of the load balancer that a Service requests: its group if it validly
// requests a shared load balancer, else the Service itself.
func KeyOf(svc *corev1.Service, d lb.Defaults) lb.Owner {
	if wants(svc, d) {
		if group, err := lb.Group(svc.Namespace, svc.Annotations[lb.AnnotationShared],
			d.Shared); err == nil && group != "" {
			return lb.GroupOwner(d.Cluster, group)
		}
	}
	return Owner(svc, d.Cluster)
}

// wants reports whether the controller should provide a load balancer for the Service.
func wants(svc *corev1.Service, d lb.Defaults) bool {
	return svc.DeletionTimestamp.IsZero() && Ours(svc, d.Classless)
}

// balancer is a load balancer and the Services that concern it.
type balancer struct {
	owner lb.Owner
	have  lb.State
	// members are served by it, or should be, oldest first; services are the same Services.
	members  []lb.Member
	services []*corev1.Service
	// departing no longer request a load balancer of this controller; left are served by another
	// load balancer; gone are UIDs in its labels without a Service.
	departing, left []*corev1.Service
	gone            []string
	// unmarked is a Service without a request, with a finalizer that may be this controller's.
	unmarked *corev1.Service
	taken    []string      // of the members' other load balancers
	next     time.Duration // time until damping allows other pods as targets; 0: unknown
}

// balancer returns an owner's load balancer and Services. An error means that the owner has
// several load balancers; then the result is without them.
func (v Survey) balancer(owner lb.Owner) (balancer, error) {
	b := balancer{owner: owner}
	var requesting []string
	for _, svc := range v.Services {
		if wants(svc, v.Defaults) && KeyOf(svc, v.Defaults) == owner {
			requesting = append(requesting, string(svc.UID))
		}
	}
	found := owner.Find(v.States, requesting)
	if len(found) > 1 {
		v.fill(&b)
		return b, fmt.Errorf("load balancers %d and %d: %w", found[0].ID, found[1].ID, lb.ErrAmbiguous)
	}
	if len(found) == 1 {
		b.have = found[0]
	}
	v.fill(&b)
	return b, nil
}

// fill adds the Services of b.have.
func (v Survey) fill(b *balancer) {
	byAge := slices.SortedFunc(slices.Values(v.Services), func(a, b *corev1.Service) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
	})
	b.gone = b.have.Services()
	for _, svc := range byAge {
		uid := string(svc.UID)
		carried := slices.Contains(b.have.Services(), uid)
		b.gone = slices.DeleteFunc(b.gone, func(gone string) bool { return gone == uid })
		own := b.owner.Group == "" && b.owner.UID == uid
		switch role := roleOf(svc, v.Defaults); {
		case role == wanted && KeyOf(svc, v.Defaults) == b.owner:
			v.join(b, svc, lb.Wanted)
		case !own && !carried:
		case role == wanted:
			v.leave(b, svc, carried)
		case role == kept:
			if carried && b.owner.Group != "" {
				v.join(b, svc, lb.Frozen)
			}
		case role == departing, carried:
			b.departing = append(b.departing, svc)
		case role == unmarked:
			b.unmarked = svc
		}
	}
}

// leave adds a Service that requests another balancer.
func (v Survey) leave(b *balancer, svc *corev1.Service, carried bool) {
	shared := svc.Annotations[lb.AnnotationShared] != ""
	switch {
	case !carried:
	case !v.needs(svc, b.have):
		b.left = append(b.left, svc)
	case b.owner.Group != "" && shared && KeyOf(svc, v.Defaults).Group == "":
		v.join(b, svc, lb.Frozen) // the requested balancer is unknown
	default:
		v.join(b, svc, lb.Closing)
	}
}

func (v Survey) join(b *balancer, svc *corev1.Service, standing lb.Standing) {
	m, next := v.member(b.owner, svc, b.have, standing)
	b.next = sooner(b.next, next)
	m.Parsed = m.Parsed && standing != lb.Frozen // its part is not changed
	b.members, b.services = append(b.members, m), append(b.services, svc)
	owner := Owner(svc, v.Defaults.Cluster)
	for _, s := range v.States {
		if s.ID != b.have.ID && owner.Carries(s.Labels) {
			b.taken = append(b.taken, s.Name)
		}
	}
}

// needs reports whether a Service that requests another balancer must still be served by have:
// because a port is not served there yet, or because its status has addresses of have.
func (v Survey) needs(svc *corev1.Service, have lb.State) bool {
	uid := string(svc.UID)
	held := have
	if have.Shared() {
		held = have.Only(uid)
	}
	other := KeyOf(svc, v.Defaults)
	var now lb.State
	if found := other.Find(v.States, []string{uid}); len(found) == 1 && found[0].ID != have.ID {
		if now = found[0]; other.Group != "" {
			now = now.Only(uid)
		}
	}
	open, any := lb.ByPort(now.Listeners), false
	for _, l := range held.Listeners {
		if slices.ContainsFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool {
			return int(p.Port) == l.Port && p.Protocol == corev1.ProtocolTCP
		}) {
			if _, served := open[l.Port]; !served {
				return true
			}
			any = true
		}
	}
	return any && shows(svc, have)
}

// shows reports whether a Service's status has an address of the load balancer, onlyThose whether
// it has no other address: a private address may soon be another load balancer's.
func shows(svc *corev1.Service, have lb.State) bool {
	return slices.ContainsFunc(svc.Status.LoadBalancer.Ingress,
		func(in corev1.LoadBalancerIngress) bool { return isOf(in, have) })
}

func onlyThose(svc *corev1.Service, have lb.State) bool {
	other := func(in corev1.LoadBalancerIngress) bool { return in.IP != "" && !isOf(in, have) }
	return !slices.ContainsFunc(svc.Status.LoadBalancer.Ingress, other)
}

func isOf(in corev1.LoadBalancerIngress, have lb.State) bool {
	return in.IP != "" &&
		(in.IP == have.IPv4.String() || in.IP == have.IPv6.String() || in.IP == have.PrivateIP.String())
}

// member parses a Service and chooses its nodes and pods. next is the time until damping allows
// other pods; 0: not before an endpoint changes.
func (v Survey) member(
	owner lb.Owner, svc *corev1.Service, have lb.State, standing lb.Standing,
) (m lb.Member, next time.Duration) {
	q, hasPods := question(svc), slices.ContainsFunc(have.Targets, lb.Target.Pod)
	m = lb.Member{Standing: standing, HadManaged: hadManaged(svc), Holds: holds(svc)}
	var all []*discoveryv1.EndpointSlice
	readsPods := lb.MayMeanPods(svc.Annotations) || hasPods
	if local(svc) || readsPods {
		all = v.Slices(svc)
	}
	var notes []lb.Note
	var others int
	if readsPods {
		e := readEndpoints(svc, all, v.Nodes, v.Defaults.OwnPools)
		for i := range q.Ports {
			q.Ports[i].TargetPorts = e.ports[i]
		}
		if lb.WantsPods(svc.Annotations) {
			q.PodTargets, notes = e.pods.Choose(have)
		}
		m.Pods, next = v.damper.damp(owner, e, have, v.Now)
		others = len(e.pods.Others)
	}
	spec, parsed, err := lb.Parse(q, v.Defaults)
	notes = append(notes, parsed...)
	var refused *lb.RefusedError
	if m.Spec, m.Parsed = spec, err == nil; errors.As(err, &refused) {
		m.Spec = lb.Spec{
			Owner:     Owner(svc, v.Defaults.Cluster),
			Subject:   lb.Subject{Namespace: svc.Namespace, Service: svc.Name},
			Targeting: lb.Targeting{PodTargets: q.PodTargets},
		}
		notes = append(notes, refused.Notes...)
	}
	if !m.Parsed || standing == lb.Closing {
		q.PodTargets = hasPods || len(have.Targets) == 0 && q.PodTargets
	}
	m.Service = q
	if q.PodTargets && m.Parsed && len(m.Pods)+others == 0 && len(m.Spec.Hindrances()) == 0 {
		notes = append(notes, noPods())
	}
	// Package lb does not parse label selectors. This is done even if the Service is refused, so
	// that the user gets all errors at once.
	text := svc.Annotations[lb.AnnotationNodeSelector]
	selector, err := labels.Parse(text)
	if err != nil && !q.PodTargets {
		m.Parsed, m.AnyNode, selector = false, true, labels.Nothing()
		notes = append(notes, lb.Note{
			Grade: lb.Error, Reason: lb.ReasonInvalid, Field: lb.AnnotationNodeSelector, Value: text,
			Text: fmt.Sprintf("not a label selector (%v): write it as kubectl's --selector; until then the targets stay as they are", err),
		})
	}
	m.Notes = notes
	v.admit(&m, svc, all, selector)
	return m, next
}

// admit adds the nodes that the Service allows as targets.
func (v Survey) admit(
	m *lb.Member, svc *corev1.Service, all []*discoveryv1.EndpointSlice, selector labels.Selector,
) {
	endpoints := serving(all...)
	m.Follows = local(svc) && !m.Service.PodTargets
	ipv6 := slices.Contains(svc.Spec.IPFamilies, corev1.IPv6Protocol)
	for _, node := range v.Nodes {
		n := asTarget(node, v.Defaults.DedicatedRanges, ipv6)
		switch {
		case !eligible(node) || !selector.Matches(labels.Set(node.Labels)):
			if dedicated(node) {
				m.Spec.Excluded = append(m.Spec.Excluded, n)
			}
			continue
		case joins(node):
			m.Nodes = append(m.Nodes, n)
		default:
			m.Staying = append(m.Staying, n)
		}
		if local(svc) && endpoints[node.Name] {
			m.Preferred = append(m.Preferred, n)
		}
	}
}

// serving returns the nodes with a ready endpoint, by the rule of kube-proxy's health check node
// port: unknown counts as ready.
func serving(slices ...*discoveryv1.EndpointSlice) map[string]bool {
	nodes := make(map[string]bool)
	for _, slice := range slices {
		for _, e := range slice.Endpoints {
			if e.NodeName != nil && ptr.Deref(e.Conditions.Ready, true) {
				nodes[*e.NodeName] = true
			}
		}
	}
	return nodes
}
