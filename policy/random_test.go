package policy

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"
)

// chooser draws small clusters, in which everything meets everything.
type chooser struct{ *rand.Rand }

func of[T any](c chooser, all ...T) T { return all[c.IntN(len(all))] }

func (c chooser) some(n int) bool { return c.IntN(n) == 0 }

func (c chooser) labels() map[string]string {
	l := map[string]string{}
	for _, key := range []string{"app", "tier"} {
		if !c.some(3) {
			l[key] = of(c, "a", "b")
		}
	}
	return l
}

func (c chooser) selector() *Selector {
	s := Selector{}
	for range c.IntN(3) {
		r := Requirement{Key: of(c, "app", "tier"), Operator: of(c, In, NotIn, Exists, DoesNotExist)}
		if r.Operator == In || r.Operator == NotIn {
			r.Values = of(c, []string{"a"}, []string{"b"}, []string{"b", "a"})
		}
		s = append(s, r)
	}
	return &s
}

const nodeCount = 3

// address is one of a node's few.
func (c chooser) address(node, f int) netip.Addr {
	text := []string{"10.0.%d.%d", "fd00:%d::%d"}[f]
	return netip.MustParseAddr(fmt.Sprintf(text, node, 2+c.IntN(3)))
}

func (c chooser) node(i int) Node {
	cidrs := []netip.Prefix{
		netip.MustParsePrefix(fmt.Sprintf("10.0.%d.0/24", i)), netip.MustParsePrefix(fmt.Sprintf("fd00:%d::/64", i)),
	}
	return Node{PodCIDRs: cidrs[:of(c, 1, 2, 2, 2)]}
}

func (c chooser) pod() Pod {
	node := c.IntN(nodeCount)
	p := Pod{
		Name: c.name("p", 8), Labels: c.labels(), Node: fmt.Sprint("n", node),
		HostNetwork: c.some(12), Ended: c.some(12), Created: int64(c.IntN(4)),
	}
	for f := range 2 {
		at := node
		if c.some(10) {
			at = c.IntN(nodeCount) // claims another node's
		}
		if !c.some(6) {
			p.Addresses = append(p.Addresses, c.address(at, f))
		}
	}
	for _, name := range []string{"web", "dns"} {
		if c.some(2) {
			p.Ports = append(p.Ports, NamedPort{name, of(c, TCP, UDP), of[uint16](c, 80, 81)})
		}
	}
	return p
}

func (c chooser) name(prefix string, n int) Name {
	return Name{fmt.Sprint("ns", c.IntN(3)), fmt.Sprint(prefix, c.IntN(n))}
}

func (c chooser) policy() Policy {
	p := Policy{Name: c.name("policy", 3), Pods: *c.selector()}
	p.Types = of(c, nil, []Direction{Ingress}, []Direction{Egress}, []Direction{Ingress, Egress})
	for range c.IntN(3) {
		p.Ingress = append(p.Ingress, c.allow())
	}
	for range c.IntN(3) {
		p.Egress = append(p.Egress, c.allow())
	}
	return p
}

func (c chooser) allow() (a Allow) {
	for range c.IntN(3) {
		a.Peers = append(a.Peers, c.peer())
	}
	for range c.IntN(3) {
		port := Port{Protocol: of(c, TCP, UDP, SCTP)}
		switch c.IntN(4) {
		case 0:
			port.Name = of(c, "web", "dns")
		case 1:
			port.Number = of[uint16](c, 80, 81, 82)
		case 2:
			port.Number, port.End = of[uint16](c, 79, 80), of[uint16](c, 80, 81)
		}
		a.Ports = append(a.Ports, port)
	}
	return a
}

func (c chooser) peer() (p Peer) {
	switch c.IntN(4) {
	case 0:
		p.Block = netip.MustParsePrefix(of(c, "10.0.0.0/16", "10.0.1.0/24", "0.0.0.0/0", "fd00::/16", "::/0", "192.0.2.0/25"))
		for range c.IntN(3) {
			p.Except = append(p.Except, netip.MustParsePrefix(of(c, "10.0.1.0/30", "10.0.0.2/32", "192.0.2.0/24", "fd00:1::/32", "fd00:2::3/128")))
		}
		p.Except = slices.DeleteFunc(p.Except, func(e netip.Prefix) bool { return e.Addr().Is4() != p.Block.Addr().Is4() })
	case 1:
		p.Pods = c.selector()
	case 2:
		p.Namespaces = c.selector()
	default:
		p.Pods, p.Namespaces = c.selector(), c.selector()
	}
	return p
}

// step changes the world and the indexes in the same way.
func (c chooser) step(w world, all []*Index) {
	each := func(change func(*Index)) {
		for _, x := range all {
			change(x)
		}
	}
	switch c.IntN(12) {
	case 0:
		i := c.IntN(nodeCount)
		name, n := fmt.Sprint("n", i), c.node(i)
		if c.some(4) {
			delete(w.nodes, name)
			each(func(x *Index) { x.DeleteNode(name) })
			return
		}
		w.nodes[name] = n
		each(func(x *Index) { x.SetNode(name, n) })
	case 1:
		name, labels := fmt.Sprint("ns", c.IntN(3)), c.labels()
		if c.some(6) {
			delete(w.namespaces, name)
			each(func(x *Index) { x.DeleteNamespace(name) })
			return
		}
		w.namespaces[name] = labels
		each(func(x *Index) { x.SetNamespace(name, labels) })
	case 2, 3, 4:
		p := c.policy()
		if c.some(3) {
			delete(w.policies, p.Name)
			each(func(x *Index) { x.DeletePolicy(p.Name) })
			return
		}
		w.policies[p.Name] = p
		each(func(x *Index) { x.SetPolicy(p) })
	default:
		p := c.pod()
		if c.some(4) {
			delete(w.pods, p.Name)
			each(func(x *Index) { x.DeletePod(p.Name) })
			return
		}
		w.pods[p.Name] = p
		each(func(x *Index) { x.SetPod(p) })
	}
}

func newIndexes() (all []*Index) {
	for i := range nodeCount {
		all = append(all, NewIndex(fmt.Sprint("n", i)))
	}
	return all
}

// fresh returns indexes that were told the world at once, in an order of the map.
func (w world) fresh() []*Index {
	all := newIndexes()
	for _, x := range all {
		for _, p := range w.policies {
			x.SetPolicy(p)
		}
		for _, p := range w.pods {
			x.SetPod(p)
		}
		for name, n := range w.nodes {
			x.SetNode(name, n)
		}
		for name, labels := range w.namespaces {
			x.SetNamespace(name, labels)
		}
	}
	return all
}

func allAddresses() (all []netip.Addr) {
	for n := range nodeCount {
		for host := 2; host < 5; host++ {
			all = append(all, netip.MustParseAddr(fmt.Sprintf("10.0.%d.%d", n, host)), netip.MustParseAddr(fmt.Sprintf("fd00:%d::%d", n, host)))
		}
	}
	return append(all, netip.MustParseAddr("192.0.2.5"), netip.MustParseAddr("192.0.2.200"), netip.MustParseAddr("2001:db8::1"))
}

// compare compares the filters of all nodes together with the model, and Explain with both.
func compare(t *testing.T, c chooser, w world, all []*Index) {
	t.Helper()
	var rulesets []Ruleset
	for _, x := range all {
		rulesets = append(rulesets, x.Ruleset())
	}
	for _, from := range allAddresses() {
		for _, to := range allAddresses() {
			if from.Is4() != to.Is4() {
				continue
			}
			conn := Connection{from, to, of(c, TCP, UDP, SCTP, TCP, UDP, 1), of[uint16](c, 79, 80, 81, 82)}
			want := w.allowed(conn)
			got := true
			for _, r := range rulesets {
				got = got && r.Allows(conn)
			}
			if got != want {
				t.Fatalf("%+v is allowed: %t, want %t; explained as %+v", conn, got, want, all[0].Explain(conn))
			}
			closed := func(a netip.Addr) bool { _, known := w.podAt(a); return !known && w.inPodCIDR(a) }
			if e := all[0].Explain(conn); !closed(from) && !closed(to) && e.Allowed != want {
				t.Fatalf("%+v is explained as allowed: %t, want %t: %+v", conn, e.Allowed, want, e)
			}
		}
	}
}

// TestRulesetsMeanWhatTheAPISays also shows that the way to a state does not matter.
func TestRulesetsMeanWhatTheAPISays(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			c := chooser{rand.New(rand.NewPCG(seed, 1))}
			w := world{map[string]Node{}, map[string]map[string]string{}, map[Name]Pod{}, map[Name]Policy{}}
			indexes := newIndexes()
			for range 40 {
				for range 1 + c.IntN(6) {
					c.step(w, indexes)
				}
				compare(t, c, w, indexes)
			}
			for i, x := range w.fresh() {
				if fresh, grown := x.Ruleset(), indexes[i].Ruleset(); !sameRuleset(fresh, grown) {
					t.Fatalf("a new index has\n%+v\nand one that grew\n%+v", fresh, grown)
				}
			}
		})
	}
}

func sameRuleset(a, b Ruleset) bool {
	sets := func(r Ruleset) map[string]string {
		out := map[string]string{}
		for name, s := range r.Sets {
			out[name] = fmt.Sprint(s)
		}
		return out
	}
	return reflect.DeepEqual(a.Pods, b.Pods) && maps.Equal(sets(a), sets(b)) && slices.Equal(a.PodCIDRs, b.PodCIDRs)
}
