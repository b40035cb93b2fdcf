package addresses

import (
	"cmp"
	"hash/fnv"
	"slices"
)

// watchers is by how many others a holder is watched: enough that two of them must agree, and a
// number that does not grow with the cluster.
const watchers = 3

// Watchers are the nodes that watch a holder: those with the highest hashes, at most three, so that
// a node that comes or goes changes few of them.
func Watchers(holder string, nodes []string) []string {
	others := slices.DeleteFunc(slices.Clone(nodes), func(n string) bool { return n == holder })
	slices.SortFunc(others, func(a, b string) int {
		return cmp.Or(cmp.Compare(watchWeight(holder, b), watchWeight(holder, a)), cmp.Compare(a, b))
	})
	others = slices.Compact(others)
	return others[:min(watchers, len(others))]
}

// AgentPort is where the agent of a node that may hold addresses says over HTTP, below /healthz,
// that it runs. Nobody else answers for the node's addresses; but one that is replaced comes back in
// seconds, and neighbors remember a node for longer, so it may be silent for a while.
const AgentPort = 10267

// Watched are the ports of other nodes that a node watches: what the addresses of each holder are
// checked by, and its agent's, where the node is one of the holder's watchers. nodes are all that can watch.
// Addresses that nodes hold together are not among them: routers notice which of those are gone.
func (l Ledger) Watched(self string, nodes []string) []Endpoint {
	watches := make(map[string]bool)
	var found []Endpoint
	for _, e := range l.Entries() {
		if e.Holder == "" || e.Holder == self || len(e.Shares) == 0 {
			continue
		}
		mine, known := watches[e.Holder]
		if !known {
			mine = slices.Contains(Watchers(e.Holder, nodes), self)
			watches[e.Holder] = mine
		}
		if mine {
			found = append(found, Endpoint{e.Holder, e.Check()}, Endpoint{e.Holder, AgentPort})
		}
	}
	slices.SortFunc(found, Endpoint.compare)
	return slices.Compact(found)
}

// Silent are the ports that most of their holders' watchers call silent. What a node says of one
// that it does not watch counts for nothing, and so does one whose watcher can't tell.
//
// Two of three must agree, and both of two: a watcher that is cut off itself hears nobody, and must
// not take addresses from those that it does not hear. Where there is one watcher, it decides.
func Silent(reports map[string]Report, nodes []string) []Endpoint {
	votes := make(map[Endpoint]int)
	for watcher, r := range reports {
		// Each has one vote, however often it says so.
		said := slices.SortedFunc(slices.Values(r.Silent), Endpoint.compare)
		for _, e := range slices.Compact(said) {
			if slices.Contains(Watchers(e.Node, nodes), watcher) {
				votes[e]++
			}
		}
	}
	var found []Endpoint
	for e, n := range votes {
		if 2*n > len(Watchers(e.Node, nodes)) {
			found = append(found, e)
		}
	}
	slices.SortFunc(found, Endpoint.compare)
	return found
}

func watchWeight(holder, watcher string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(holder))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(watcher))
	return mix(h.Sum64())
}
