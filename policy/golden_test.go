package policy

import (
	"net/netip"
	"slices"
)

// world is a cluster as the API server has it, and a model of what NetworkPolicies mean: slow,
// and each function written from a sentence of the API reference of networking.k8s.io/v1.
type world struct {
	nodes      map[string]Node
	namespaces map[string]map[string]string
	pods       map[Name]Pod
	policies   map[Name]Policy
}

// "NetworkPolicy describes what network traffic is allowed for a set of pods."
func (w world) allowed(c Connection) bool {
	if c.From == c.To {
		return true
	}
	from, fromKnown := w.podAt(c.From)
	to, toKnown := w.podAt(c.To)
	if !fromKnown && w.inPodCIDR(c.From) || !toKnown && w.inPodCIDR(c.To) {
		return false // closed
	}
	return (!fromKnown || w.side(Egress, c, from, to, toKnown, c.To)) &&
		(!toKnown || w.side(Ingress, c, to, from, fromKnown, c.From))
}

// "Traffic is allowed to a pod if there are no NetworkPolicies selecting the pod …, OR … if the
// traffic matches at least one ingress rule across all of the NetworkPolicy objects whose
// podSelector matches the pod."
func (w world) side(d Direction, c Connection, pod, peer Pod, peerKnown bool, at netip.Addr) bool {
	selected := false
	for _, p := range w.policies {
		if p.Namespace != pod.Namespace || !w.inDirection(p, d) || !w.selects(p.Pods, pod.Labels) {
			continue
		}
		selected = true
		rules := p.Ingress
		if d == Egress {
			rules = p.Egress
		}
		for _, rule := range rules {
			// "This rule matches traffic if and only if the traffic matches both ports AND from."
			target, targetKnown := pod, true
			if d == Egress {
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
func (w world) inDirection(p Policy, d Direction) bool {
	types := p.Types
	if len(types) == 0 {
		if types = []Direction{Ingress}; len(p.Egress) > 0 {
			types = append(types, Egress)
		}
	}
	return slices.Contains(types, d)
}

// "If this field is empty or missing, this rule matches all sources."
func (w world) peerMatches(p Policy, rule Allow, peer Pod, known bool, at netip.Addr) bool {
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
		labels, exists := w.namespaces[peer.Namespace]
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
func (w world) portMatches(rule Allow, c Connection, target Pod, known bool) bool {
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

func (w world) selects(s Selector, labels map[string]string) bool {
	for _, r := range s {
		value, exists := labels[r.Key]
		in := exists && slices.Contains(r.Values, value)
		if r.Operator == In && !in || r.Operator == NotIn && in ||
			r.Operator == Exists && !exists || r.Operator == DoesNotExist && exists {
			return false
		}
	}
	return true
}

// podAt returns the youngest of the pods that have the address.
func (w world) podAt(a netip.Addr) (found Pod, known bool) {
	for _, p := range w.pods {
		if p.HostNetwork || p.Ended || !slices.Contains(p.Addresses, a) {
			continue
		}
		own := slices.ContainsFunc(w.nodes[p.Node].PodCIDRs, func(c netip.Prefix) bool { return c.Contains(a) })
		younger := !known || p.Created > found.Created || p.Created == found.Created && p.Name.String() > found.Name.String()
		if own && younger {
			found, known = p, true
		}
	}
	return found, known
}

func (w world) inPodCIDR(a netip.Addr) bool {
	for _, n := range w.nodes {
		for _, p := range n.PodCIDRs {
			if p.Contains(a) {
				return true
			}
		}
	}
	return false
}
