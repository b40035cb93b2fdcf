// Package agent keeps one machine's kernel routes in step with a cluster's
// Nodes, so that its pods reach those of every other machine without an overlay.
//
// Decide is the pure half: Nodes, links and the kernel's table in; what should
// stand, what differs, and which peers can't be reached out. Agent is the loop
// around it: Node events, route, link and address events of the kernel, and a
// full pass once a minute, all lead to the same whole decision. The one
// shortcut is a route of ours that somebody deletes: it is added again at once,
// which is safe without looking, because adding never overwrites.
//
// The package must never replace or delete a route that isn't marked as ours
// (protocol 201), never delete anything before it has seen every Node, nor a route
// while this machine's own Node is unknown, and never leave out a peer in silence. It
// removes nothing when it stops: an upgrade drops no packet.
//
// How each family travels is configuration: by kernel routes to every peer
// (node), by the cloud network's own table behind one aggregate route (cloud), or
// by the provider, which routes each server's prefix to it (native). Where its
// facts come from: rtnetlink(7), ip-route(8), and for IPv4 routes that vanish
// without an event net/ipv4/fib_frontend.c (fib_disable_ip).
package agent
