// Package policymodel is a model of what NetworkPolicies mean, to compare package policy and what
// it makes of the kernel with, and draws random clusters for that.
//
// The model is slow, and each of its functions is written from a sentence of the API reference of
// networking.k8s.io/v1. It must never use a decision of package policy.
package policymodel

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/underlay-ccm/underlay/policy"
)

// World is a cluster as the API server has it.
type World struct {
	Nodes      map[string]policy.Node
	Namespaces map[string]map[string]string
	Pods       map[policy.Name]policy.Pod
	Policies   map[policy.Name]policy.Policy
}

// New returns a world without anything in it.
func New() World {
	return World{
		map[string]policy.Node{},
		map[string]map[string]string{},
		map[policy.Name]policy.Pod{},
		map[policy.Name]policy.Policy{},
	}
}

// Index returns an index that was given the world at once, in an order of the maps.
func (w World) Index(node string) *policy.Index {
	x := policy.NewIndex(node)
	for _, p := range w.Policies {
		x.SetPolicy(p)
	}
	for _, p := range w.Pods {
		x.SetPod(p)
	}
	x.SetNodes(maps.Clone(w.Nodes))
	for name, labels := range w.Namespaces {
		x.SetNamespace(name, labels)
	}
	return x
}

// Closed reports whether an address belongs to a node's pods, and no known pod has it.
func (w World) Closed(a netip.Addr) bool {
	_, known := w.podAt(a)
	return !known && w.inPodCIDR(a)
}

// Allowed reports whether a connection may begin while every node enforces the policies.
//
// "NetworkPolicy describes what network traffic is allowed for a set of pods."
func (w World) Allowed(c policy.Connection) bool {
	if c.From == c.To {
		return true
	}
	from, fromKnown := w.podAt(c.From)
	to, toKnown := w.podAt(c.To)
	if w.Closed(c.From) || w.Closed(c.To) {
		return false
	}
	return (!fromKnown || w.side(policy.Egress, c, from, to, toKnown, c.To)) &&
		(!toKnown || w.side(policy.Ingress, c, to, from, fromKnown, c.From))
}

// "Traffic is allowed to a pod if there are no NetworkPolicies selecting the pod …, OR … if the
// traffic matches at least one ingress rule across all of the NetworkPolicy objects whose
// podSelector matches the pod."
func (w World) side(
	d policy.Direction, c policy.Connection, pod, peer policy.Pod, peerKnown bool, at netip.Addr,
) bool {
	selected := false
	for _, p := range w.Policies {
		if p.Namespace != pod.Namespace || !w.inDirection(p, d) || !w.selects(p.Pods, pod.Labels) {
			continue
		}
		selected = true
		rules := p.Ingress
		if d == policy.Egress {
			rules = p.Egress
		}
		for _, rule := range rules {
			// "This rule matches traffic if and only if the traffic matches both ports AND from."
			target, targetKnown := pod, true
			if d == policy.Egress {
				target, targetKnown = peer, peerKnown
			}
			if w.peerMatches(p, rule, peer, peerKnown, at) && w.portMatches(rule, c, target, targetKnown) {
				return true
			}
		}
	}
	return !selected
}

// "If this field is not specified, it will default based on the existence of ingress or egress
// rules; policies that contain an egress section are assumed to affect egress, and all policies …
// are assumed to affect ingress."
func (w World) inDirection(p policy.Policy, d policy.Direction) bool {
	types := p.Types
	if len(types) == 0 {
		if types = []policy.Direction{policy.Ingress}; len(p.Egress) > 0 {
			types = append(types, policy.Egress)
		}
	}
	return slices.Contains(types, d)
}

// "If this field is empty or missing, this rule matches all sources."
func (w World) peerMatches(
	p policy.Policy, rule policy.Allow, peer policy.Pod, known bool, at netip.Addr,
) bool {
	if len(rule.Peers) == 0 {
		return true
	}
	for _, one := range rule.Peers {
		if one.Block.IsValid() {
			inside := one.Block.Contains(at)
			for _, e := range one.Except {
				inside = inside && !e.Contains(at)
			}
			if inside {
				return true
			}
			continue
		}
		labels, exists := w.Namespaces[peer.Namespace]
		switch {
		case !known:
		case one.Pods != nil && one.Namespaces == nil:
			if peer.Namespace == p.Namespace && w.selects(*one.Pods, peer.Labels) {
				return true
			}
		case one.Namespaces != nil && one.Pods == nil:
			if exists && w.selects(*one.Namespaces, labels) {
				return true
			}
		case one.Namespaces != nil:
			if exists && w.selects(*one.Namespaces, labels) && w.selects(*one.Pods, peer.Labels) {
				return true
			}
		}
	}
	return false
}

// "If this field is empty or missing, this rule matches all ports (traffic not restricted by
// port)." "If present, only traffic on the specified protocol AND port will be matched."
func (w World) portMatches(
	rule policy.Allow, c policy.Connection, target policy.Pod, known bool,
) bool {
	if len(rule.Ports) == 0 {
		return true
	}
	for _, p := range rule.Ports {
		if p.Protocol != c.Protocol {
			continue
		}
		if p.Name != "" {
			for _, n := range target.Ports {
				if known && n.Name == p.Name && n.Protocol == c.Protocol && n.Port == c.Port {
					return true
				}
			}
			continue
		}
		if p.Number == 0 || p.Number == c.Port || p.End != 0 && p.Number <= c.Port && c.Port <= p.End {
			return true
		}
	}
	return false
}

func (w World) selects(s policy.Selector, labels map[string]string) bool {
	for _, r := range s {
		value, exists := labels[r.Key]
		in := exists && slices.Contains(r.Values, value)
		if r.Operator == policy.In && !in || r.Operator == policy.NotIn && in ||
			r.Operator == policy.Exists && !exists || r.Operator == policy.DoesNotExist && exists {
			return false
		}
	}
	return true
}

// podAt returns the youngest of the pods that have the address.
func (w World) podAt(a netip.Addr) (found policy.Pod, known bool) {
	for _, p := range w.Pods {
		if p.HostNetwork || p.Ended || !slices.Contains(p.Addresses, a) {
			continue
		}
		own := slices.ContainsFunc(w.Nodes[p.Node].PodCIDRs, func(c netip.Prefix) bool {
			return c.Contains(a)
		})
		younger := !known || p.Created > found.Created ||
			p.Created == found.Created && p.Name.String() > found.Name.String()
		if own && younger {
			found, known = p, true
		}
	}
	return found, known
}

func (w World) inPodCIDR(a netip.Addr) bool {
	for _, n := range w.Nodes {
		for _, p := range n.PodCIDRs {
			if p.Contains(a) {
				return true
			}
		}
	}
	return false
}
