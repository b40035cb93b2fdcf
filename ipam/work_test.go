package ipam

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
)

// The work for a Node hardly depends on the number of Nodes: to join, to be read at a start, to be
// replaced by another one, and to be recorded when a cluster is taken over. The test counts
// allocations, which are the same on every machine.
func TestWorkGrowsWithTheNodes(t *testing.T) {
	if testing.Short() || slowdown > 1 {
		t.Skip("takes minutes with the race detector, which allocates too")
	}
	const few, many = 5_000, 50_000
	small, large := work(t, few), work(t, many)
	for _, phase := range []string{"join", "start", "replace", "take over"} {
		t.Logf("%s: %.1f allocations a Node of %d, %.1f of %d", phase, small[phase], few, large[phase], many)
		if large[phase] > 1.5*small[phase] {
			t.Errorf("%s: %.1f allocations a Node of %d, and %.1f of %d: want about as many", phase, small[phase], few, large[phase], many)
		}
	}
}

// work returns the allocations per Node of each phase.
func work(t *testing.T, nodes int) map[string]float64 {
	t.Helper()
	facts := factsOf(
		PoolConfig{Name: "v4", Prefix: pfx("10.0.0.0/8"), NodeMask: 24},
		PoolConfig{Name: "v6", Prefix: pfx("fd00::/48"), NodeMask: 64})
	made := map[string]float64{}
	count := func(phase string, of int, do func()) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		do()
		runtime.ReadMemStats(&after)
		made[phase] = float64(after.Mallocs-before.Mallocs) / float64(of)
	}
	node := func(i int) Node {
		return Node{Name: fmt.Sprint("worker-", i), UID: fmt.Sprintf("%08d-0000-4000-8000-000000000000", i)}
	}
	s := newObjectStore()
	l, f := s.reload(t, facts)
	join := func(from, to int) {
		for i := from; i < to; i++ {
			if _, err := l.Assign(node(i), Offer{}); err != nil {
				t.Fatal(err)
			}
			f.Update(node(i).Name, noon)
			if i%100 == 99 {
				s.settle(f)
			}
		}
		s.settle(f)
	}
	count("join", nodes, func() { join(0, nodes) })
	count("start", nodes, func() { l, f = s.reload(t, facts) })
	const gone = 1000
	count("replace", gone, func() {
		for i := range gone {
			n := node(i * (nodes / gone))
			if _, ok := l.Release(n.UID, noon); !ok {
				t.Fatalf("%s holds nothing", n.Name)
			}
			f.Update(n.Name, noon)
			join(nodes+i, nodes+i+1)
			l.Free(n.UID)
			f.Update(n.Name, noon)
		}
		s.settle(f)
	})
	once(t, l, nodes)

	taken, err := Rebuild(facts)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range l.Holdings() {
		taken.Observe(h.Node, h.Prefixes, noon)
	}
	s = newObjectStore()
	f = NewFiles(taken.Ledger, s.objects)
	count("take over", nodes, func() {
		for _, h := range taken.Holdings() {
			f.Update(h.Node.Name, noon)
		}
		s.settle(f)
	})
	again, _ := s.reload(t, facts)
	once(t, again, nodes)
	return made
}

// once fails unless the number of Nodes is right and each has two prefixes that no other one has.
func once(t *testing.T, l *Ledger, nodes int) {
	t.Helper()
	seen := map[netip.Prefix]bool{}
	for _, h := range l.Holdings() {
		if len(h.Prefixes) != 2 {
			t.Fatalf("%s holds %v", h.Node.Name, h.Prefixes)
		}
		for _, p := range h.Prefixes {
			if seen[p] {
				t.Fatalf("%s is held twice", p)
			}
			seen[p] = true
		}
	}
	if len(seen) != 2*nodes {
		t.Errorf("%d prefixes are held by %d Nodes", len(seen), nodes)
	}
}
