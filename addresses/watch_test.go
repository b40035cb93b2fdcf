package addresses_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/underlay-ccm/underlay/addresses"
)

func names(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("node-%d", i))
	}
	return all
}

// Each node is watched by three others, or by all if there are fewer, and watching is spread
// evenly.
func TestWatchers(t *testing.T) {
	for n, want := range map[int]int{0: 0, 1: 0, 2: 1, 3: 2, 4: 3, 100: 3} {
		nodes := names(n)
		burden := make(map[string]int)
		for _, holder := range nodes {
			got := addresses.Watchers(holder, nodes)
			if len(got) != want || slices.Contains(got, holder) {
				t.Errorf("%d nodes: %s is watched by %v", n, holder, got)
			}
			slices.Reverse(nodes)
			if again := addresses.Watchers(holder, nodes); !slices.Equal(again, got) {
				t.Errorf("in another order %s is watched by %v, not %v", holder, again, got)
			}
			for _, w := range got {
				burden[w]++
			}
		}
		for node, holders := range burden {
			if holders > 12 {
				t.Errorf("%d nodes: %s watches %d", n, node, holders)
			}
		}
	}
}

// A deleted node changes the watchers of only those nodes that it watched, by one.
func TestWatchersChangeLittle(t *testing.T) {
	nodes := names(20)
	for _, holder := range nodes[1:] {
		before, after := addresses.Watchers(holder, nodes), addresses.Watchers(holder, nodes[1:])
		kept := 0
		for _, w := range before {
			if slices.Contains(after, w) {
				kept++
			}
		}
		if want := len(before) - count(before, nodes[0]); kept != want {
			t.Errorf("%s: %v, then %v", holder, before, after)
		}
	}
}

func count(all []string, one string) (n int) {
	for _, s := range all {
		if s == one {
			n++
		}
	}
	return n
}

func TestWatched(t *testing.T) {
	nodes := []string{"n1", "n2", "n3"}
	c := claim("local", 0, addresses.IPv4)
	c.Local, c.Check = true, 30999
	pools := []addresses.Pool{pool("a", "192.0.2.0/24")}
	l, _ := addresses.Ledger{}.Assign(pools, []addresses.Claim{c, claim("s1", 1, addresses.IPv4), claim("s2", 2, addresses.IPv4), claim("shared", 3, addresses.IPv4)})
	may := everywhere(l, []string{"n1"})
	l, _ = l.Place(may)
	holder := []addresses.Endpoint{{Node: "n1", Port: addresses.ProxyPort}, {Node: "n1", Port: addresses.AgentPort}, {Node: "n1", Port: 30999}}
	// Nodes without addresses are watched as possible next holders.
	idle := func(n string) []addresses.Endpoint {
		return []addresses.Endpoint{
			{Node: n, Port: addresses.ProxyPort}, {Node: n, Port: addresses.AgentPort},
		}
	}
	for self, want := range map[string][]addresses.Endpoint{
		"n1": slices.Concat(idle("n2"), idle("n3")), "n2": slices.Concat(holder, idle("n3")), "n3": slices.Concat(holder, idle("n2")), "stranger": nil,
	} {
		if got := l.Watched(self, nodes); !slices.Equal(got, want) {
			t.Errorf("%s watches %v, want %v", self, got, want)
		}
	}
	// A node that is not ready may still respond, and keeps its addresses until another node takes
	// them.
	if got := l.Watched("n2", []string{"n2", "n3"}); !slices.Equal(got, slices.Concat(holder, idle("n3"))) {
		t.Errorf("n1 is not ready: n2 watches %v", got)
	}
	both, _ := l.Place(together(l, []string{"n1", "n2"}))
	if got := both.Watched("n3", nodes); len(got) > 0 {
		t.Errorf("routers see who announces, and n3 watches %v", got)
	}
	free, _ := l.Assign(pools, nil)
	free, _ = free.Place(nil)
	if got := free.Watched("n2", nodes); len(got) > 0 {
		t.Errorf("nobody has an address, and n2 watches %v", got)
	}
}

func TestSilent(t *testing.T) {
	proxy := addresses.Endpoint{Node: "holder", Port: addresses.ProxyPort}
	for _, c := range []struct {
		nodes, voters int // beside the holder; the first voters of its watchers
		silent        bool
	}{
		{1, 0, false},
		{1, 1, true},
		{2, 1, false},
		{2, 2, true},
		{3, 1, false},
		{3, 2, true},
		{9, 1, false},
		{9, 2, true},
		{9, 3, true},
	} {
		nodes := append(names(c.nodes), "holder")
		reports := map[string]addresses.Report{
			"holder":   {Silent: []addresses.Endpoint{proxy}}, // of itself
			"stranger": {Silent: []addresses.Endpoint{proxy}},
		}
		watchers := addresses.Watchers("holder", nodes)
		for _, n := range nodes[:c.nodes] {
			if !slices.Contains(watchers, n) {
				reports[n] = addresses.Report{Silent: []addresses.Endpoint{proxy}} // does not count
			}
		}
		for _, w := range watchers[:c.voters] {
			reports[w] = addresses.Report{Silent: []addresses.Endpoint{proxy, proxy}}
		}
		for _, n := range nodes {
			if _, hasReport := reports[n]; !hasReport {
				reports[n] = addresses.Report{} // all nodes respond to it
			}
		}
		got := addresses.Silent(reports, nodes)
		if slices.Equal(got, []addresses.Endpoint{proxy}) != c.silent || !c.silent && len(got) > 0 {
			t.Errorf("%d nodes, %d watchers hear nothing: silent are %v", c.nodes, c.voters, got)
		}
	}
}

// reportsBy returns the reports of nodes about the nodes that they watch, by hears. The last
// reports of nodes that are gone have no unresponsive nodes.
func reportsBy(
	nodes, gone []string, hears func(watcher, node string) bool,
) map[string]addresses.Report {
	reports := make(map[string]addresses.Report)
	for _, n := range nodes {
		reports[n] = addresses.Report{}
	}
	for _, n := range nodes {
		for _, watcher := range addresses.Watchers(n, nodes) {
			if r := reports[watcher]; !slices.Contains(gone, watcher) && !hears(watcher, n) {
				r.Silent = append(r.Silent, addresses.Endpoint{Node: n, Port: addresses.ProxyPort})
				reports[watcher] = r
			}
		}
	}
	return reports
}

// nodesOf returns the nodes of ports.
func nodesOf(all []addresses.Endpoint) (names []string) {
	for _, e := range all {
		names = append(names, e.Node)
	}
	slices.Sort(names)
	return names
}

// A node that is cut off from the others reaches no node, no node reaches it, and its reports make
// no other node unresponsive, with any number of nodes and for each of them.
func TestANodeThatIsCutOffMakesNoOtherUnresponsive(t *testing.T) {
	for n := 3; n <= 30; n++ {
		nodes := names(n)
		for _, alone := range nodes {
			reports := reportsBy(nodes, nil, func(watcher, node string) bool {
				return watcher != alone && node != alone
			})
			if got := addresses.Silent(reports, nodes); !slices.Equal(nodesOf(got), []string{alone}) {
				t.Errorf("%d nodes, %s is cut off: silent are %v", n, alone, got)
			}
		}
	}
}

// A node that can't reach some others, while all reach it, makes none of them unresponsive, for any
// set of nodes with agents. A node without an agent doesn't respond at the agent's port either.
func TestANodeThatReachesNoOthersMakesNoneUnresponsive(t *testing.T) {
	for n := 3; n <= 9; n++ {
		nodes, watchers := names(n), make(map[string][]string)
		for _, node := range nodes {
			watchers[node] = addresses.Watchers(node, nodes)
		}
		for _, deaf := range nodes {
			for set := 0; set < 1<<n; set++ {
				within := func(node string) bool { return set&(1<<slices.Index(nodes, node)) != 0 }
				hears := func(watcher, node string) bool { return watcher != deaf || !within(node) }
				if got := addresses.Silent(reportsBy(nodes, nil, hears), nodes); len(got) > 0 {
					t.Fatalf("%s of %d hears nobody of %b: silent are %v", deaf, n, set, got)
				}
				if within(deaf) {
					continue // the set of those without an agent, here
				}
				reports := reportsBy(nodes, nil, func(watcher, _ string) bool { return watcher != deaf })
				for watcher, r := range reports {
					for _, node := range nodes {
						if slices.Contains(watchers[node], watcher) && within(node) {
							r.Silent = append(r.Silent, addresses.Endpoint{Node: node, Port: addresses.AgentPort})
						}
					}
					reports[watcher] = r
				}
				maps.DeleteFunc(reports, func(node string, _ addresses.Report) bool { return within(node) })
				got := addresses.Silent(reports, nodes)
				for _, e := range got {
					if e.Port == addresses.ProxyPort || !within(e.Node) {
						t.Fatalf("%s of %d hears nobody, %b have no agent: silent are %v", deaf, n, set, got)
					}
				}
			}
		}
	}
}

// A rack fails: no remaining node counts as unresponsive, and each failed node does of which a
// majority of the watchers remains.
func TestARackFails(t *testing.T) {
	for n := 2; n <= 9; n++ {
		nodes := names(n)
		for set := 1; set < 1<<n-1; set++ {
			isGone := func(node string) bool { return set&(1<<slices.Index(nodes, node)) != 0 }
			var gone, want []string
			for _, node := range nodes {
				if !isGone(node) {
					continue
				}
				gone = append(gone, node)
				watchers := addresses.Watchers(node, nodes)
				left := len(slices.DeleteFunc(slices.Clone(watchers), isGone))
				if 2*left > len(watchers) {
					want = append(want, node)
				}
			}
			reports := reportsBy(nodes, gone, func(_, node string) bool { return !isGone(node) })
			if got := nodesOf(addresses.Silent(reports, nodes)); !slices.Equal(got, want) {
				t.Errorf("of %d nodes %v are gone: silent are %v, want %v", n, gone, got, want)
			}
			if len(gone) == 1 && len(want) != 1 {
				t.Errorf("of %d nodes %v is gone, and its watchers are no majority", n, gone)
			}
		}
	}
}

// Each node watches exactly the nodes of which it is a watcher.
func TestWatchedByTheirWatchers(t *testing.T) {
	l, _ := used(3).Place(everywhere(used(3), []string{"node-0"}))
	for _, n := range []int{1, 2, 3, 4, 5, 60} {
		nodes := names(n)
		watched := make(map[string][]string)
		for _, self := range nodes {
			for _, e := range l.Watched(self, nodes) {
				if e.Port == addresses.AgentPort {
					watched[e.Node] = append(watched[e.Node], self)
				}
			}
		}
		for _, node := range nodes {
			want := addresses.Watchers(node, nodes)
			slices.Sort(want)
			slices.Sort(watched[node])
			if !slices.Equal(watched[node], want) {
				t.Errorf("%d nodes: %s is watched by %v, want %v", n, node, watched[node], want)
			}
		}
	}
}
