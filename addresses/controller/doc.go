// Package controller gives Services of class underlay.dev/address their addresses, and each address
// the node that holds it: it is the program's service-address-controller.
//
// One goroutine decides. Whatever changes leads to one pass over everything: Services become
// claims, package addresses assigns and places, what comes out is stored in one ConfigMap, and only
// then Services show it. The agents on the nodes watch that ConfigMap and hold what it says; what
// they tell of themselves and of each other comes back in an annotation of their Nodes. Floating
// IPs and failover addresses are routed by an API of the cloud, see [Router]. At rest nothing is
// written.
//
// It must never:
//   - show an address in a Service's status that the stored ledger does not give to it;
//   - send a refused or lost write of the ledger again: it reads the ledger and plans anew, so that
//     a process that lost its leadership without knowing gives nothing away that another gave;
//   - take an address from a Service because a cache does not know it: a live read says first that
//     the Service is gone, or that it asks for none any more;
//   - show an address at a Service while another one that lost it still shows it;
//   - read a ledger that is damaged as an empty one.
//
// There is no finalizer. An address is bookkeeping alone: what remains of a Service that went is a
// line of the ledger, and the next pass of whoever leads frees it, because nobody claims it. A
// finalizer would keep Services from going while no controller runs, for nothing.
package controller
