//go:build linux

// Package probe is what runs inside a pod of underlayctl connectivity: Serve answers
// under a name, Ask carries trials out and says what became of them.
//
// It needs no rights and no API server, and must never send anything that it was not
// told to. Its facts are Linux's: IP_MTU_DISCOVER in ip(7), IPV6_MTU_DISCOVER in
// ipv6(7).
package probe
