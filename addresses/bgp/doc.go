// Package bgp knows what a node tells BGP routers: which addresses and podCIDRs, over which
// sessions, with which next hop. Nodes that announce the same address are the members of one
// multipath route at the router.
//
// [Desired] is the whole of it. [Diff] is the way from one to the next: what is new is announced
// before what is old is withdrawn, and only sessions whose own settings changed are ended.
//
// A session carries the family of its own addresses, with the address that it comes from as next
// hop, which is what every router expects. Only where all routers of the node are spoken to in one
// family, the other one goes over the same sessions too (RFC 4760), with an address of the node as
// next hop; it is sent if the router negotiates that family.
//
// The package is pure: its subpackage speaker keeps the sessions. It must never take a route from
// a router, and never change one of the kernel's: neither is in its types.
package bgp
