package addresses

import "slices"

// watchers limits the number of nodes that watch a holder: enough that two of them must agree, and
// independent of the size of the cluster. They have the highest rendezvous hashes, so that adding
// or removing a node changes few of them.
const watchers = 3

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

// watches reports whether a node is one of the watchers of another node. It stops at the third node
// with a higher hash: in large clusters it is called for each node.
func watches(self, holder string, nodes []string) bool {
	if self == holder || !slices.Contains(nodes, self) {
		return false
	}
	key, before := holder+"\x00", 0
	own := weight(key, self)
	for _, n := range nodes {
		other := weight(key, n)
		if n != holder && n != self && (other > own || other == own && n < self) {
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
		others := len(nodes)
		if slices.Contains(nodes, e.Node) {
			others--
		}
		if 2*len(voters) > min(watchers, others) {
			silent = append(silent, e)
		}
	}
	slices.SortFunc(silent, Endpoint.compare)
	return silent
}
