package policymodel

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/underlay-ccm/underlay/policy"
)

// NodeCount is the number of nodes of a random cluster: n0, n1 and so on.
const NodeCount = 3

// Address returns one of a node's few addresses; host is 2 to 4, family 0 for IPv4 and 1 for IPv6.
func Address(node, host, family int) netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf([]string{"10.0.%d.%d", "fd00:%d::%d"}[family], node, host))
}

// PodCIDRs returns those of a node.
func PodCIDRs(node int) []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix(fmt.Sprintf("10.0.%d.0/24", node)), netip.MustParsePrefix(fmt.Sprintf("fd00:%d::/64", node)),
	}
}

// Outside returns addresses that policies mention, or don't, and that no pod has.
func Outside() []netip.Addr {
	return []netip.Addr{netip.MustParseAddr("192.0.2.5"), netip.MustParseAddr("192.0.2.200"), netip.MustParseAddr("2001:db8::1")}
}

// Chooser draws small clusters, in which everything meets everything.
type Chooser struct{ *rand.Rand }

// Of returns one of all.
func Of[T any](c Chooser, all ...T) T { return all[c.IntN(len(all))] }

// Some reports true once in n times.
func (c Chooser) Some(n int) bool { return c.IntN(n) == 0 }

func (c Chooser) labels() map[string]string {
	l := map[string]string{}
	for _, key := range []string{"app", "tier"} {
		if !c.Some(3) {
			l[key] = Of(c, "a", "b")
		}
	}
	return l
}

func (c Chooser) selector() *policy.Selector {
	s := policy.Selector{}
	for range c.IntN(3) {
		r := policy.Requirement{Key: Of(c, "app", "tier"), Operator: Of(c, policy.In, policy.NotIn, policy.Exists, policy.DoesNotExist)}
		if r.Operator == policy.In || r.Operator == policy.NotIn {
			r.Values = Of(c, []string{"a"}, []string{"b"}, []string{"b", "a"})
		}
		s = append(s, r)
	}
	return &s
}

func (c Chooser) pod() policy.Pod {
	node := c.IntN(NodeCount)
	p := policy.Pod{
		Name: c.name("p", 8), Labels: c.labels(), Node: fmt.Sprint("n", node),
		HostNetwork: c.Some(12), Ended: c.Some(12), Created: int64(c.IntN(4)),
	}
	for f := range 2 {
		at := node
		if c.Some(10) {
			at = c.IntN(NodeCount) // claims another node's
		}
		if !c.Some(6) {
			p.Addresses = append(p.Addresses, Address(at, 2+c.IntN(3), f))
		}
	}
	for _, name := range []string{"web", "dns"} {
		if c.Some(2) {
			p.Ports = append(p.Ports, policy.NamedPort{
				Name: name, Protocol: Of(c, policy.TCP, policy.UDP), Port: Of[uint16](c, 80, 81),
			})
		}
	}
	return p
}

func (c Chooser) name(prefix string, n int) policy.Name {
	return policy.Name{Namespace: fmt.Sprint("ns", c.IntN(3)), Name: fmt.Sprint(prefix, c.IntN(n))}
}

func (c Chooser) policy() policy.Policy {
	p := policy.Policy{Name: c.name("policy", 3), Pods: *c.selector()}
	p.Types = Of(c, nil, []policy.Direction{policy.Ingress}, []policy.Direction{policy.Egress},
		[]policy.Direction{policy.Ingress, policy.Egress})
	for range c.IntN(3) {
		p.Ingress = append(p.Ingress, c.allow())
	}
	for range c.IntN(3) {
		p.Egress = append(p.Egress, c.allow())
	}
	return p
}

func (c Chooser) allow() (a policy.Allow) {
	for range c.IntN(3) {
		a.Peers = append(a.Peers, c.peer())
	}
	for range c.IntN(3) {
		port := policy.Port{Protocol: Of(c, policy.TCP, policy.UDP, policy.SCTP)}
		switch c.IntN(4) {
		case 0:
			port.Name = Of(c, "web", "dns")
		case 1:
			port.Number = Of[uint16](c, 80, 81, 82)
		case 2:
			port.Number, port.End = Of[uint16](c, 79, 80), Of[uint16](c, 80, 81)
		}
		a.Ports = append(a.Ports, port)
	}
	return a
}

func (c Chooser) peer() (p policy.Peer) {
	switch c.IntN(4) {
	case 0:
		p.Block = netip.MustParsePrefix(Of(c, "10.0.0.0/16", "10.0.1.0/24", "0.0.0.0/0", "fd00::/16", "::/0", "192.0.2.0/25"))
		for range c.IntN(3) {
			p.Except = append(p.Except, netip.MustParsePrefix(Of(c, "10.0.1.0/30", "10.0.0.2/32", "192.0.2.0/24", "fd00:1::/32", "fd00:2::3/128")))
		}
		p.Except = slices.DeleteFunc(p.Except, func(e netip.Prefix) bool {
			return e.Addr().Is4() != p.Block.Addr().Is4()
		})
	case 1:
		p.Pods = c.selector()
	case 2:
		p.Namespaces = c.selector()
	default:
		p.Pods, p.Namespaces = c.selector(), c.selector()
	}
	return p
}

// Change changes the world, but for its nodes, and returns the same change of an index.
func (c Chooser) Change(w World) func(*policy.Index) {
	switch c.IntN(11) {
	case 0:
		name, labels := fmt.Sprint("ns", c.IntN(3)), c.labels()
		if c.Some(6) {
			delete(w.Namespaces, name)
			return func(x *policy.Index) { x.DeleteNamespace(name) }
		}
		w.Namespaces[name] = labels
		return func(x *policy.Index) { x.SetNamespace(name, labels) }
	case 1, 2, 3:
		p := c.policy()
		if c.Some(3) {
			delete(w.Policies, p.Name)
			return func(x *policy.Index) { x.DeletePolicy(p.Name) }
		}
		w.Policies[p.Name] = p
		return func(x *policy.Index) { x.SetPolicy(p) }
	}
	p := c.pod()
	if c.Some(4) {
		delete(w.Pods, p.Name)
		return func(x *policy.Index) { x.DeletePod(p.Name) }
	}
	w.Pods[p.Name] = p
	return func(x *policy.Index) { x.SetPod(p) }
}

// ChangeNode changes one of the world's nodes, and returns the same change of an index.
func (c Chooser) ChangeNode(w World) func(*policy.Index) {
	i := c.IntN(NodeCount)
	name, n := fmt.Sprint("n", i), policy.Node{PodCIDRs: PodCIDRs(i)[:Of(c, 1, 2, 2, 2)]}
	if c.Some(4) {
		delete(w.Nodes, name)
	} else {
		w.Nodes[name] = n
	}
	now := maps.Clone(w.Nodes)
	return func(x *policy.Index) { x.SetNodes(now) }
}
