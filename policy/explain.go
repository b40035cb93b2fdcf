package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Explanation is whether a connection is allowed, and why.
type Explanation struct {
	Allowed bool
	// Note, if not empty, is why no policy applies to the connection.
	Note string
	// Egress is that of the source, Ingress that of the destination.
	Egress, Ingress Side
}

// Side is the judgment in one direction.
type Side struct {
	Pod Name // with the address; zero if no pod has it
	// Policies isolate the pod. Without any, everything is allowed.
	Policies []Name
	// By are the rules that allow the connection.
	By []RuleName
}

// RuleName is a rule of a policy, by its index.
type RuleName struct {
	Policy    Name
	Direction Direction
	Index     int
}

func (r RuleName) String() string {
	return fmt.Sprintf("%s, %s rule %d", r.Policy, r.Direction, r.Index+1)
}

// Allowed reports whether nothing is isolated in the direction, or a rule allows the connection.
func (s Side) Allowed() bool { return len(s.Policies) == 0 || len(s.By) > 0 }

// Explain judges a connection between any two addresses.
func (x *Index) Explain(c Connection) Explanation {
	from, to := x.holder(c.From), x.holder(c.To)
	switch {
	case c.From == c.To:
		return Explanation{Allowed: true, Note: "a pod reaches itself"}
	case to != nil && slices.Contains(x.nodes[to.Node].Addresses, c.From):
		return Explanation{Allowed: true, Note: "a node reaches its pods: " + to.Node}
	case from != nil && slices.Contains(x.nodes[from.Node].Addresses, c.To):
		return Explanation{Allowed: true, Note: "a pod reaches its node: " + from.Node}
	}
	e := Explanation{
		Egress:  x.judge(Egress, c, from, c.To),
		Ingress: x.judge(Ingress, c, to, c.From),
	}
	e.Allowed = e.Egress.Allowed() && e.Ingress.Allowed()
	return e
}

// judge judges the direction of a pod, which may be nil, with its peer at an address.
func (x *Index) judge(d Direction, c Connection, p *pod, at netip.Addr) (s Side) {
	if p == nil {
		return s
	}
	s.Pod = p.Name
	for _, policy := range x.selecting(p, d) {
		s.Policies = append(s.Policies, policy.Name)
		for i, allow := range policy.rules(d) {
			rules, used := compileRule(d, policy.Namespace, allow, p.Ports)
			sets := map[string]Set{}
			for _, g := range used {
				g.fill(x)
				sets[g.name] = g.set()
			}
			if slices.ContainsFunc(rules, func(r Rule) bool { return r.matches(sets, at, c) }) {
				s.By = append(s.By, RuleName{policy.Name, d, i})
			}
		}
	}
	return s
}

// Selecting returns the policies that isolate a pod in a direction, by name.
func (x *Index) Selecting(name Name, d Direction) (names []Name) {
	if p := x.pods[name]; p != nil {
		for _, policy := range x.selecting(p, d) {
			names = append(names, policy.Name)
		}
	}
	return names
}

// Held returns the addresses that a pod has: those that it reports, but for those that are not
// in its node's podCIDRs or another pod's.
func (x *Index) Held(name Name) []netip.Addr {
	if p := x.pods[name]; p != nil {
		return p.held
	}
	return nil
}

// Warning is what can't work in a policy.
type Warning struct {
	Policy Name
	Text   string
}

// Warnings returns what can't work in any policy, sorted.
func (x *Index) Warnings() (all []Warning) {
	for _, policies := range x.policies {
		for _, p := range policies {
			for _, text := range x.warnings(p) {
				all = append(all, Warning{p.Name, text})
			}
		}
	}
	slices.SortFunc(all, func(a, b Warning) int {
		return strings.Compare(a.Policy.String()+" "+a.Text, b.Policy.String()+" "+b.Text)
	})
	return slices.Compact(all)
}

func (x *Index) warnings(policy *Policy) (found []string) {
	selected := x.podsOf(policy.Namespace, policy.Pods)
	if len(selected) == 0 {
		found = append(found, "podSelector matches no pod of the namespace, so the policy has no effect")
	}
	for d, targets := range []map[Name]*pod{selected, x.pods} {
		for i, allow := range policy.rules(Direction(d)) {
			warn := func(format string, args ...any) {
				where := fmt.Sprintf("%s rule %d: ", Direction(d), i+1)
				found = append(found, where+fmt.Sprintf(format, args...))
			}
			for _, peer := range allow.Peers {
				if peer.Pods != nil && peer.Namespaces == nil &&
					len(x.podsOf(policy.Namespace, *peer.Pods)) == 0 {
					warn("a podSelector matches no pod of the policy's own namespace; pods of others need a namespaceSelector beside it")
				}
			}
			for _, port := range allow.Ports {
				switch {
				case port.End != 0 && port.Number == 0:
					warn("endPort %d has no effect without a port that is a number", port.End)
				case port.Name != "" && len(targets) > 0 && !port.in(targets):
					warn("no pod that it could mean has a %s port named %q, so it allows nothing", port.Protocol,
						port.Name)
				}
			}
		}
	}
	return found
}

func (x *Index) podsOf(namespace string, selector Selector) map[Name]*pod {
	found := map[Name]*pod{}
	for name, p := range x.byNS[namespace] {
		if !p.HostNetwork && selector.Matches(p.Labels) {
			found[name] = p
		}
	}
	return found
}

// in reports whether one of the pods has the named port.
func (p Port) in(pods map[Name]*pod) bool {
	for _, pod := range pods {
		if slices.ContainsFunc(pod.Ports, p.names) {
			return true
		}
	}
	return false
}
