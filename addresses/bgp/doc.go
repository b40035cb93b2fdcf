// Package bgp plans the BGP announcements of a node: the addresses and podCIDRs, the sessions with
// routers, and the next hops. Nodes that announce the same address are members of one multipath
// route at the router.
//
// [Desired] is the complete state. [Diff] plans the change to another Desired: it announces new
// paths before it withdraws old ones, and ends only sessions whose own settings changed.
//
// A session carries its own family, with its local address as next hop, as every router expects. If
// all routers of the node have sessions in one family, these sessions also carry the other family
// (RFC 4760), with an address of the node as next hop, to each router that negotiates it.
//
// The package is pure: package speaker runs the sessions. The package must never accept a route
// from a router or change a route of the kernel: its types have neither.
package bgp
