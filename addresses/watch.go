package addresses

import (
	"cmp"
	"hash/fnv"
	"slices"
)

// watchers limits the number of nodes that watch a holder: enough that two of them must agree,
// and independent of the size of the cluster.
const watchers = 3

// Watchers returns the nodes that watch a holder: at most three, with the highest rendezvous
// hashes, so that adding or removing a node changes few of them.
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

// AgentPort is the port at which the agent of a node serves HTTP below /healthz. Only the agent
// answers for the node's addresses, but a replaced agent is back in seconds and neighbors cache
// entries for longer, so it may be unresponsive for a while.
const AgentPort = 10267

// Watched returns the ports that a node checks on the nodes that it watches: kube-proxy and the
// agent, and the health check ports of the addresses that a node holds. nodes are all nodes that
// can watch, without duplicates. Nodes without addresses are watched too: an unresponsive node
// must not be chosen as the next holder.
//
// If no node holds an address alone, no node is watched: for an address that several nodes
// announce, routers detect the failure.
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

// watches reports whether a node is one of the [Watchers] of another node. It stops at the third
// node with a higher hash: in large clusters it is called for each node.
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

// Silent returns the ports that watchers report as unresponsive. Reports about a node that the
// reporter does not watch are ignored.
//
// agreed are the ports that a majority of all watchers reports: two of three, both of two, or a
// single watcher. A watcher that is cut off must not take addresses from nodes that it can't reach.
//
// Failed watchers report nothing, so nodes of a failed rack that watch each other would keep their
// addresses. So left are the ports that one watcher reports while all other watchers are
// unreliable: a node other than that watcher reports their kube-proxy or agent as unresponsive.
// Its own reports don't make them unreliable, because it may be cut off itself, for example while
// the packet filters of the other nodes do not list it yet although its own filter lists them: it
// then reports all nodes that it watches, and no node reports it. The price is that the last
// surviving node of three or four is not believed, as no node confirms its reports: the failed
// nodes keep their addresses until Kubernetes marks them NotReady.
//
// Watchers without a report are unreliable too, but at least two watchers must have reports: a
// single one can't be distinguished from one that is cut off.
//
// Trusting a single watcher is safe under two conditions.
//
//   - Nodes that are cut off from the other nodes but not from the API server are reported by
//     their own watchers as soon as they report other nodes, so their reports add nothing to left.
//     They may be a few checks earlier: a caller that acts on left has to wait that long.
//   - A node that is cut off from the API server sends no new reports and moves nothing: holders
//     change by a write of the ledger that the API server must accept. If two halves of the
//     cluster report each other's nodes, hardly any watcher is reliable.
func Silent(reports map[string]Report, nodes []string) (agreed, left []Endpoint) {
	votes := make(map[Endpoint][]string)
	doubters := make(map[string][]string) // by node
	for watcher, r := range reports {
		// Each watcher has one vote, also if it reports a port twice.
		silentEndpoints := slices.SortedFunc(slices.Values(r.Silent), Endpoint.compare)
		for _, e := range slices.Compact(silentEndpoints) {
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
		// There are at most three watchers, so this is the only voter.
		another := func(doubter string) bool { return doubter != voters[0] }
		var reporting, counted []string
		for _, w := range all {
			if _, hasReport := reports[w]; !hasReport {
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
