package addresses

import (
	"cmp"
	"slices"
)

// Watchers is the simple model of watches: the nodes that watch a holder.
func Watchers(holder string, nodes []string) []string {
	type other struct {
		name   string
		weight uint64
	}
	others := make([]other, 0, len(nodes))
	for _, n := range nodes {
		if n != holder {
			others = append(others, other{n, weight(holder+"\x00", n)})
		}
	}
	slices.SortFunc(others, func(a, b other) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(a.name, b.name))
	})
	others = slices.Compact(others)
	names := make([]string, min(watchers, len(others)))
	for i := range names {
		names[i] = others[i].name
	}
	return names
}
