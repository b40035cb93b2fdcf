// Package socket opens the wires of package layer2: packet sockets for ARP and neighbor discovery
// on one interface, with kernel filters so that no other packet wakes the process.
//
// It requires only CAP_NET_RAW. It must never change an interface: no address, no promiscuous mode;
// its multicast groups are left with the socket.
package socket
