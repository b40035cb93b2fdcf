// Package directory publishes what agents use of every Node: a ConfigMap for each Node in the
// namespace underlay-nodes, with its podCIDRs, addresses and readiness.
//
// Agents watch it instead of Nodes. A kubelet writes its Node's status every few minutes whether
// anything changed or not, a Node has some 14 kB, and an API server sends each of these writes to
// every watcher: among 15,000 Nodes these are 700 kB a second for each of 15,000 agents. An entry
// has less than 1 kB and is written when something changed that an agent uses.
//
// Publisher, in the cloud controller manager, is its only writer. Nodes, in the agents, caches it.
// An agent removes the routes to what is not in the directory, so it uses none that was never
// complete, or of which the object Complete is missing.
package directory
