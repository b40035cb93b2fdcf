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
	two := []PoolConfig{pool4Of("10.0.0.0/23", 24)}
	one, both, root := setting{two, 0, true}, setting{two, 1, true}, setting{two, 0, false}
	nodes := exploreNodes("a1", "b1")
	bare := scope{starts: []setting{root, root}, nodes: nodes}
	shards := scope{starts: []setting{one, one}, nodes: nodes}
	moved := scope{starts: []setting{one, one}, nodes: nodes, served: 1, by: root, relieves: 1, faults: 2}
	back := scope{starts: []setting{both, root}, nodes: exploreNodes("a1", "b1", "c1"), served: 1, by: both}
	for _, c := range []struct {
		flaw  flaw
		name  string
		scope scope
	}{
		{anyVersion, "writes without version", bare},
		{anyVersion, "writes of shards without version", shards},
		{unrecorded, "PATCH before it is recorded", bare},
		{leftEarly, "lines that leave the root before their shard has them", moved},
		{oldGeneration, "shards taken back without a new generation", back},
		{twiceGranted, "a block granted twice", shards},
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
