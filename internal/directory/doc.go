// Package directory publishes the fields of all Nodes that agents use: one ConfigMap per Node in
// the namespace underlay-nodes, with its podCIDRs, addresses and readiness.
//
// Agents watch it instead of Nodes. A kubelet writes its Node's status every few minutes even
// without changes, a Node has about 14 kB, and an API server sends each of these writes to every
// watcher: with 15,000 Nodes these are 700 kB per second for each of 15,000 agents. An entry has
// less than 1 kB and is written only if such a field changed.
//
// Publisher, in the cloud controller manager, is the only writer. Nodes, in the agents, is the
// cache. An agent removes the routes to Nodes that are not in the directory, so it never uses a
// directory that was never complete or lacks the object Complete.
package directory
