// Package socket opens the wires of package layer2: packet sockets for ARP and for neighbor
// discovery on one interface, with filters in the kernel so that no other packet wakes anybody.
//
// It takes CAP_NET_RAW and nothing else. It must never change an interface: no address, no
// promiscuous mode; the groups that it joins are left with the socket.
package socket
