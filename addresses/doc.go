// Package addresses assigns addresses to Services and chooses the node that holds each address,
// for clusters without a provider's load balancer.
//
// A [Pool] contains ranges of addresses. [Ledger.Assign] assigns one address of each requested
// family to each Service. A Service keeps its addresses for its lifetime; Services share an
// address only if they have the same key. [Ledger.Place] chooses the node that holds each address
// from the nodes that the caller considers eligible.
//
// It must never:
//   - assign an address to two Services that do not share it;
//   - take an address that a Service uses because another Service requests it, or because a node
//     is added or removed;
//   - use one epoch of an address for two holders: each change of the holder increases the epoch,
//     also after the address was released and assigned again;
//   - leave an address without a holder because no other node is eligible.
//
// The package is pure: no clock, no logging, no Kubernetes. Outputs are sorted and depend only on
// the inputs. A Ledger is a value: a method that returns a Ledger does not modify its receiver.
package addresses
