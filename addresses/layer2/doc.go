// Package layer2 holds addresses on a segment: it answers ARP (RFC 826, RFC 5227) and neighbor
// discovery (RFC 4861) for them in user space, so that their traffic comes to this machine, and
// announces them when they come here from another one.
//
// The addresses are configured on no interface. The kernel would answer for them on every one,
// and each program that listens on all addresses would be open at them. What arrives for them
// is kube-proxy's to redirect.
//
// The protocol is a value without clock and sockets (protocol.go): desired state, messages and
// the time go in, frames come out. [Responder] runs it over one [Wire] for each interface and
// address family; package socket opens those.
//
// Who else may hold an address is known from two things. Machines of the cluster say the epoch of
// the ledger by which they hold it, in bytes that others ignore: an epoch that is higher than the
// own proves that the own view of the ledger is old. What says no such thing is a stranger, unless
// its hardware address is that of a machine of the cluster.
//
// What must never happen:
//   - an address is announced, or answered for, while a stranger is known to have it and it was
//     not held here before;
//   - an address is answered for on an interface that is not on its segment;
//   - in doubt about the ledger an address is defended against one who may hold it rightly;
//   - two machines of the cluster that hear each other both go on holding an address.
package layer2
