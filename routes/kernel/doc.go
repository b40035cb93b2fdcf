// Package kernel implements the Linux networking that routes/agent needs: the main route
// table, interfaces with their addresses, neighbors and proxy neighbors, and the kernel's
// events about them. No other package accesses those by netlink.
//
// It decides nothing. It must never touch a table but the main one, never add a route over
// another, and never return a part of a table as if it were complete. Requests share one
// socket, because opening a socket takes longer than a request. Events have a separate one, so
// that they stay in order; it is reopened when the kernel reports dropped events (ENOBUFS).
//
// Everything happens in the network namespace of the thread that opens a socket, which is the
// program's unless it changes that. Sources: rtnetlink(7), netlink(7), and linux/rtnetlink.h.
package kernel
