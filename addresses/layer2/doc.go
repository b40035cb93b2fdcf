// Package layer2 holds addresses on a segment: it answers ARP (RFC 826, RFC 5227) and neighbor
// discovery (RFC 4861) for them in user space, and announces them when they move to this node.
//
// No interface has the addresses: the kernel would answer for them on every interface, and expose
// each program that listens on all addresses. kube-proxy redirects their traffic.
//
// The protocol is a value without clock and sockets (protocol.go): its inputs are the desired
// state, messages and the time, its outputs are frames. [Responder] runs it over a [Wire] for each
// interface and address family; package socket opens them.
//
// Cluster members send the ledger's epoch of an address in bytes that other hosts ignore. A higher
// epoch than the own proves that the own copy of the ledger is outdated. A host that sends no epoch
// is an external host unless its hardware address belongs to a cluster member.
//
// It must never:
//   - announce or answer for an address that an external host is observed to have, unless it was
//     held here before;
//   - answer for an address on an interface that is neither on its segment nor its ReplyOn link;
//   - defend an address against a possibly rightful holder while the ledger is in doubt;
//   - let two cluster members that reach each other both continue to hold an address.
package layer2
