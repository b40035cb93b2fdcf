package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// compiled is a pod's chain in a direction, or nil, with the peers that it refers to.
type compiled struct {
	chain *Chain
	peers []*peers
}

// Ruleset returns the packet filter of the index's node.
func (x *Index) Ruleset() Ruleset {
	r := Ruleset{
		PodCIDRs: x.nodes[x.node].PodCIDRs, Pods: map[netip.Addr]Chains{}, Sets: map[string]Set{},
	}
	used := map[string]*peers{}
	for _, p := range x.byNode[x.node] {
		if len(p.held) == 0 {
			continue
		}
		x.compile(p)
		var both Chains
		for d := range both {
			c := &p.compiled[d]
			both[d] = c.chain
			for _, g := range c.peers {
				if used[g.name] != nil {
					continue
				}
				if earlier := x.peers[g.name]; earlier != nil {
					g = earlier
				} else {
					g.fill(x)
				}
				used[g.name] = g
				r.Sets[g.name] = g.set()
			}
		}
		for _, a := range p.held {
			r.Pods[a] = both
		}
	}
	x.peers = used
	return r
}

// compile updates the chains of a pod.
func (x *Index) compile(p *pod) {
	// The first revision of a namespace with policies is 1.
	now := x.revisions[p.Namespace] + 1
	if p.revision == now {
		return
	}
	p.revision = now
	for d := range p.compiled {
		p.compiled[d] = compiled{}
		if policies := x.selecting(p, Direction(d)); len(policies) > 0 {
			p.compiled[d] = compileChain(Direction(d), policies, p.Ports)
		}
	}
}

func compileChain(d Direction, policies []*Policy, named []NamedPort) compiled {
	out := compiled{chain: &Chain{Direction: d}}
	known := map[string]bool{}
	for _, policy := range policies {
		out.chain.Policies = append(out.chain.Policies, policy.Name)
		for _, allow := range policy.rules(d) {
			rules, peers := compileRule(d, policy.Namespace, allow, named)
			for _, r := range rules {
				if text := fmt.Sprint(r); !known[text] {
					known[text] = true
					out.chain.Rules = append(out.chain.Rules, r)
				}
			}
			out.peers = append(out.peers, peers...)
		}
	}
	out.chain.Name = digest(fmt.Sprint(d, out.chain.Policies, out.chain.Rules))
	return out
}

// compileRule resolves named ports: those of the destination, which is the selected pod for
// ingress, and the peer for egress. A rule with ports of which the pod has none matches nothing.
func compileRule(
	d Direction, namespace string, allow Allow, named []NamedPort,
) (rules []Rule, used []*peers) {
	var ranges []PortRange
	var ofPeers []*Port
	for _, port := range allow.Ports {
		switch {
		case port.Name == "" && port.Number == 0:
			ranges = append(ranges, PortRange{port.Protocol, 0, 65535})
		case port.Name == "":
			ranges = append(ranges, PortRange{port.Protocol, port.Number, max(port.Number, port.End)})
		case d == Egress:
			ofPeers = append(ofPeers, &Port{Protocol: port.Protocol, Name: port.Name})
		default:
			for _, n := range named {
				if port.names(n) {
					ranges = append(ranges, PortRange{n.Protocol, n.Port, n.Port})
				}
			}
		}
	}
	ranges = disjoint(ranges)
	each := allow.Peers
	if len(each) == 0 {
		each = []Peer{{}}
	}
	for _, peer := range each {
		every := !peer.Block.IsValid() && peer.Namespaces == nil && peer.Pods == nil
		if every && len(allow.Peers) > 0 {
			continue // the API rejects it
		}
		if len(allow.Ports) == 0 || len(ranges) > 0 {
			r := Rule{Ports: ranges}
			if !every {
				g := peersOf(namespace, peer, nil)
				r.Set, used = g.name, append(used, g)
			}
			rules = append(rules, r)
		}
		for _, port := range ofPeers {
			g := peersOf(namespace, peer, port)
			rules, used = append(rules, Rule{Set: g.name}), append(used, g)
		}
	}
	return rules, used
}

// disjoint returns the same ports as ranges in order that don't overlap.
func disjoint(all []PortRange) []PortRange {
	slices.SortFunc(all, func(a, b PortRange) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.First, b.First),
			cmp.Compare(a.Last, b.Last))
	})
	var out []PortRange
	for _, r := range all {
		if n := len(out); n > 0 && out[n-1].Protocol == r.Protocol &&
			int(r.First) <= int(out[n-1].Last)+1 {
			out[n-1].Last = max(out[n-1].Last, r.Last)
			continue
		}
		out = append(out, r)
	}
	return out
}
