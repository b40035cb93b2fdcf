// Package agent holds the addresses that the ledger places on this machine's Node: it reads the
// ledger, configures movers, checks other holders, and reports addresses and problems on its Node.
//
// What must never happen:
//   - an address is released because the API server is unreachable: the node keeps the last ledger
//     that it read, also over a restart;
//   - a node holds an address that the ledger never placed on it;
//   - a report omits a problem: each address that a mover can't hold is reported, with the reason.
//
// The ledger is a ConfigMap. [Reader] lists it, which returns the latest state, and watches it over
// a connection that detects an unreachable API server within seconds ([Connect]). So ledgers never
// arrive out of order. If the ConfigMap was restored from a backup or rebuilt, the agent follows
// it, as the manager does. While the watch is broken the node is in doubt: movers release an
// address that another machine claims, instead of defending it.
//
// Movers, the neighbor table and health checks are interfaces: the package has no access to the
// kernel's network state. Facts about kube-proxy's /healthz come from its pkg/proxy/healthcheck.
// That an update of a Node's status may change annotations comes from the API server's
// registry/core/node.
package agent
