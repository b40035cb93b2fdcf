// Package agent is one machine's part in addresses that move between nodes: it reads from the
// ledger what its Node is to hold, has movers hold it, watches the kube-proxies of other holders,
// and says on its own Node what it holds, what it can't, and whom it does not hear.
//
// What must never happen:
//   - an address is given up because nobody can be asked: while the API server is away, and after
//     a restart without it, the node goes on with the last ledger that it knows;
//   - an address is held that the ledger never gave to this node;
//   - a report hides something: what a mover could not do is said on the Node, with the reason.
//
// The ledger is a ConfigMap, read by a list that the API server answers with the latest state, and
// by a watch from there on, over a connection that notices within seconds when nobody answers any
// more ([Reader], [Connect]). So nothing older comes after something newer, and if the ledger goes
// back all the same, because somebody restored a backup or rebuilt it, that is followed: the manager
// acts by it too. While the watch is broken the node is in doubt: movers are told, and yield to
// whoever shows up with an address instead of defending it.
//
// The package knows no kernel: movers, the table of neighbors and health checks are ports. Facts
// about kube-proxy's /healthz come from its pkg/proxy/healthcheck, about Nodes' status from the API
// server's registry/core/node, which lets a change of the status change annotations.
package agent
