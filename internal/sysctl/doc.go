// Package sysctl sets what a node's kernel needs to carry pods' packets:
// forwarding in each family, router advertisements heard in spite of it, replies
// that may leave by another interface than they came in by, and answers to ARP for
// pods without a wait.
//
// What a value was before the first change is recorded before it is changed, in
// a folder that a reboot empties like the values themselves; Cleanup puts it
// back. The package must never change what already serves, never turn
// something back while the agent runs, and never undo what somebody else has
// changed since.
//
// Where its facts come from: Documentation/networking/ip-sysctl.rst of the
// kernel, net/ipv4/devinet.c and net/ipv6/addrconf.c for what else a write
// changes, and arp(7) for proxy_delay.
package sysctl
