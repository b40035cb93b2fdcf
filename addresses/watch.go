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

// Silent returns the ports that a majority of all watchers reports as unresponsive: two of three,
// both of two, or a single watcher. A watcher that is cut off must not take addresses from nodes
// that it can't reach. Reports about a node that the reporter does not watch are ignored.
//
// The price is that the failure of a node together with two of its watchers is detected only when
// Kubernetes marks the node NotReady.
func Silent(reports map[string]Report, nodes []string) (silent []Endpoint) {
	votes := make(map[Endpoint]map[string]bool)
	for watcher, r := range reports {
		for _, e := range r.Silent {
			if watches(watcher, e.Node, nodes) {
				if votes[e] == nil {
					votes[e] = make(map[string]bool)
				}
				votes[e][watcher] = true
			}
		}
	}
	for e, voters := range votes {
		if 2*len(voters) > len(Watchers(e.Node, nodes)) {
			silent = append(silent, e)
		}
	}
	slices.SortFunc(silent, Endpoint.compare)
	return silent
}

func watchWeight(holder, watcher string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(holder))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(watcher))
	return mix(h.Sum64())
}
