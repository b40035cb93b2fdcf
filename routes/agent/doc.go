// Package agent reconciles a machine's kernel routes with a cluster's Nodes, so that its pods
// reach those of every other machine without an overlay.
//
// Decide is the pure part: from Nodes, links and the kernel's table it computes the wanted routes,
// the differences, and the unreachable peers. Agent is the loop around it: Node events, route,
// link and address events of the kernel, and a full pass every minute all trigger the same
// complete decision. The only shortcut is for a route of ours that another program deletes: it is
// added again at once, which is safe without a pass, because adding never overwrites.
//
// The package must never replace or delete a route that isn't marked as ours (protocol 201),
// never delete anything before it has observed every Node, nor a route while this machine's
// own Node is missing, and never skip a peer without reporting it. It removes nothing when it
// stops: an upgrade drops no packet.
//
// The mode of each family is configuration: kernel routes to every peer (node), the cloud
// network's own table behind one aggregate route (cloud), or the provider, which routes each
// server's prefix to it (native). Sources: rtnetlink(7), ip-route(8), and for IPv4 routes that
// are deleted without an event net/ipv4/fib_frontend.c (fib_disable_ip).
package agent
