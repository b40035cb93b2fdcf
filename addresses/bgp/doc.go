// Package bgp plans the BGP announcements of a node: the addresses and podCIDRs, and the sessions
// with routers. Nodes that announce the same address are members of one multipath route at the
// router.
//
// [Desired] is the complete state. [Diff] plans the change to another Desired: it announces new
// prefixes before it withdraws old ones, and ends only sessions whose own settings changed.
//
// A session carries its own family alone, with its local address as next hop, as every router
// expects.
//
// The package is pure: package speaker runs the sessions. The package must never accept a route
// from a router or change a route of the kernel: its types have neither.
package bgp
