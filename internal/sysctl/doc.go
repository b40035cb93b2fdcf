// Package sysctl sets the sysctls that a node needs to forward pods' packets: forwarding in each
// family, router advertisements while forwarding, replies that may leave by another interface
// than their requests arrived on, and proxy ARP for pods without a delay.
//
// The original value is recorded before the first change, in a folder that a reboot empties, as
// it resets the sysctls; Cleanup restores it. The package must never change a value that is
// already sufficient, never restore a value while the agent runs, and never undo a later change
// of another program.
//
// Sources: Documentation/networking/ip-sysctl.rst of the kernel, net/ipv4/devinet.c and
// net/ipv6/addrconf.c for the side effects of a write, and arp(7) for proxy_delay.
package sysctl
