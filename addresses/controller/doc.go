// Package controller assigns addresses to Services of class underlay.dev/address and chooses the
// node that holds each address. It is the program's service-address-controller.
//
// A single goroutine decides. Each change triggers a pass over all objects: Services become claims,
// package addresses assigns and places the addresses, the ledger is stored in a ConfigMap, and only
// then Services show the addresses. The agents on the nodes watch the ConfigMap, hold the addresses
// and report their own state and that of other nodes in a Node annotation. Floating IPs and
// failover addresses are routed by an API of the cloud, see [Router]. An idle controller writes
// nothing.
//
// It must never:
//   - show an address in a Service's status that the stored ledger does not assign to it;
//   - repeat a rejected or lost write of the ledger: it reads the ledger and plans again, so that a
//     former leader assigns no address that the new leader has assigned otherwise;
//   - take an address from a Service because a cache lacks it: a live read first confirms that the
//     Service is deleted or no longer requests the address;
//   - show an address at a Service while its previous Service still shows it;
//   - treat a damaged ledger as empty.
//
// There is no finalizer: a deleted Service leaves only an entry in the ledger, which the leader's
// next pass frees. A finalizer would block deletions while no controller runs, without a benefit.
package controller
