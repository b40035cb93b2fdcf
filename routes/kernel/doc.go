// Package kernel is the Linux networking of this machine as routes/agent needs
// it: the main route table, interfaces with their addresses, neighbors and proxy
// neighbors, and the kernel's events about them. Nobody else reads or writes those
// by netlink.
//
// It decides nothing. It must never touch a table but the main one, never add a
// route over another, and never answer with a part of a table as if it were the
// whole. Requests share one socket, because opening one for each takes longer
// than the request; events have one of their own, so that they stay in order,
// opened anew when the kernel says that it had to drop some (ENOBUFS).
//
// Everything happens in the network namespace of the thread that opens a socket,
// which in a program that never changes it is the program's. Where its facts come
// from: rtnetlink(7), netlink(7), and linux/rtnetlink.h.
package kernel
