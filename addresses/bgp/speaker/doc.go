// Package speaker runs a node's BGP sessions with its routers, as package bgp plans them, with
// GoBGP.
//
// It opens sessions and does not listen for them, so a node needs no open port, except UDP port
// 3784 for peers with BFD. It rejects every route of a router, and never changes the kernel's
// routes. A session is shut down if its router announces more than a few thousand prefixes, because
// even rejected prefixes take memory: routers should announce none to nodes.
//
// A process may have only one Speaker, because GoBGP has process-wide settings.
package speaker
