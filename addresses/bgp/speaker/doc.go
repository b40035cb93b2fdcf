// Package speaker keeps a node's BGP sessions with its routers as package bgp wants them, with
// GoBGP as the speaker of the protocol.
//
// It opens sessions and listens for none, so a node needs no open port for them; BFD, where a peer
// has it, listens at UDP port 3784. What routers announce is refused; the kernel's routes are never
// touched. A router that announces more than a few thousand prefixes to a node is given up, because
// even refused ones take memory: routers should announce none to nodes.
//
// There is one Speaker in a process, because the library keeps some settings by process.
package speaker
