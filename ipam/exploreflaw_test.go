//go:build !race

// The race detector makes these tests take minutes, and flaws are found without it.

package ipam

import (
	"strings"
	"testing"
)

// TestExploreFinds requires the exploration to find deliberate flaws, each in the smallest scope
// that shows it.
func TestExploreFinds(t *testing.T) {
	near := setting{[]PoolConfig{pool4Of("10.0.0.0/23", 24)}}
	apart, large := setting{[]PoolConfig{pool4Of("10.0.0.0/19", 20)}}, setting{[]PoolConfig{pool4Of("10.0.0.0/18", 19)}}
	nodes := exploreNodes("a1", "b1")
	bare := scope{starts: []setting{near, near}, nodes: nodes}
	either := [][]int{{0}, {1}}
	for _, c := range []struct {
		flaw  flaw
		name  string
		scope scope
	}{
		{anyVersion, "writes without version", bare},
		{anyVersion, "writes of shards without version", scope{starts: []setting{apart, apart}, nodes: nodes}},
		{unrecorded, "PATCH before it is recorded", bare},
		{oneShard, "recorded in one of two shards", scope{starts: []setting{large, apart}, nodes: nodes, searches: either, faults: 1}},
		{freedAlive, "Nodes freed that live", bare},
		{oneReload, "only the version read after a conflict", bare},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			sc := c.scope
			sc.flaw = c.flaw
			x := explore(&sc, 30_000)
			if x.wrong == "" {
				t.Fatalf("not found among %d situations, all: %v", len(x.seen), x.whole)
			}
			t.Logf("found among %d situations: %s, after:\n%s", len(x.seen), x.wrong, strings.Join(x.course, "\n"))
		})
	}
}
