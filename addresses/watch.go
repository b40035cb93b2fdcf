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

// Watched are the ports of other nodes that a node watches, where it is one of their watchers:
// kube-proxy and the agent of each, and what the addresses of each holder are checked by. nodes are
// all that can watch, each once. Those that hold nothing are watched too: they are what an address
// would go to, and one that is silent must not be chosen.
//
// Where no node holds an address alone nobody is watched: routers notice which of several are gone.
func (l Ledger) Watched(self string, nodes []string) []Endpoint {
	checks := make(map[string][]int)
	for _, e := range l.entries {
		if e.Holder != "" && len(e.Shares) > 0 {
			checks[e.Holder] = append(checks[e.Holder], e.Check())
		}
	}
	if len(checks) == 0 {
		return nil
	}
	for _, n := range nodes {
		checks[n] = append(checks[n], ProxyPort)
	}
	var found []Endpoint
	for holder, ports := range checks {
		if !watches(self, holder, nodes) {
			continue
		}
		found = append(found, Endpoint{holder, AgentPort}, Endpoint{holder, ProxyPort})
		for _, port := range ports {
			found = append(found, Endpoint{holder, port})
		}
	}
	slices.SortFunc(found, Endpoint.compare)
	return slices.Compact(found)
}

// watches reports whether a node is among the [Watchers] of another one. It looks at as few nodes as
// it takes: large clusters ask this for each node.
func watches(self, holder string, nodes []string) bool {
	if self == holder || !slices.Contains(nodes, self) {
		return false
	}
	own, before := watchWeight(holder, self), 0
	for _, n := range nodes {
		weight := watchWeight(holder, n)
		if n != holder && n != self && (weight > own || weight == own && n < self) {
			if before++; before == watchers {
				return false
			}
		}
	}
	return true
}

// Silent are the ports that most of their nodes' watchers call silent. What a node says of one
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
			if watches(watcher, e.Node, nodes) {
				votes[e]++
			}
		}
	}
	var found []Endpoint
	for e, n := range votes {
		others := len(nodes)
		if slices.Contains(nodes, e.Node) {
			others--
		}
		if 2*n > min(others, watchers) {
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
