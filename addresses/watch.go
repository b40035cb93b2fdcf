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
	type other struct {
		name   string
		weight uint64
	}
	others := make([]other, 0, len(nodes))
	for _, n := range nodes {
		if n != holder {
			others = append(others, other{n, watchWeight(holder, n)})
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

// Silent are the ports that their nodes' watchers call silent. What a node says of one that it does
// not watch counts for nothing, and so does one whose watcher can't tell.
//
// agreed are those that most of all watchers call silent: two of three must agree, and both of two.
// A watcher that is cut off itself hears nobody, and must not take addresses from those that it does
// not hear. Where there is one watcher, it decides.
//
// Watchers that are gone themselves agree with nobody: of a rack that fails, those that watch each
// other would stay. So left are the ports that one watcher calls silent, where no other one can be
// counted on, because kube-proxy or the agent of each is called silent too: by somebody else than
// that one. For it may be that it alone hears nobody, as where packet filters of the others don't
// list it yet while it lets them in. Then all that it watches are silent by its word, nobody calls it
// silent, and it must not do away with those who know better. The price is that the last one of three
// or four nodes is not believed: nobody is there who says the same, and the others keep what they
// hold until Kubernetes calls them NotReady.
//
// Those that have no agent say nothing for the port either, but a watcher that has none beside it
// that reports is not believed: nothing would tell it from one that hears nobody.
//
// This trusts one alone, and is safe as far as two things hold.
//
//   - Some that are cut off from the nodes but not from the API server are called silent by their own
//     watchers as soon as they call others so. They can't be counted on then, and left is empty for
//     them. They may only be some checks earlier, so whoever acts on left has to wait that long.
//   - One that is cut off from the API server says nothing new, and moves nothing: holders change by
//     a write of the ledger that the API server must accept. Which of two halves hears the other no
//     more does not matter, where each calls the other's nodes silent: hardly any can be counted on.
func Silent(reports map[string]Report, nodes []string) (agreed, left []Endpoint) {
	votes := make(map[Endpoint][]string)
	doubters := make(map[string][]string) // of nodes
	for watcher, r := range reports {
		// Each has one vote, however often it says so.
		said := slices.SortedFunc(slices.Values(r.Silent), Endpoint.compare)
		for _, e := range slices.Compact(said) {
			if !watches(watcher, e.Node, nodes) {
				continue
			}
			votes[e] = append(votes[e], watcher)
			if e.Port == ProxyPort || e.Port == AgentPort {
				doubters[e.Node] = append(doubters[e.Node], watcher)
			}
		}
	}
	for e, voters := range votes {
		all := Watchers(e.Node, nodes)
		if 2*len(voters) > len(all) {
			agreed = append(agreed, e)
			continue
		}
		// There are three watchers at most, so one alone says so.
		another := func(doubter string) bool { return doubter != voters[0] }
		var reporting, counted []string
		for _, w := range all {
			if _, says := reports[w]; !says {
				continue
			}
			reporting = append(reporting, w)
			if !slices.ContainsFunc(doubters[w], another) {
				counted = append(counted, w)
			}
		}
		if len(reporting) > 1 && slices.Equal(counted, voters) {
			left = append(left, e)
		}
	}
	slices.SortFunc(agreed, Endpoint.compare)
	slices.SortFunc(left, Endpoint.compare)
	return agreed, left
}

func watchWeight(holder, watcher string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(holder))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(watcher))
	return mix(h.Sum64())
}
