//go:build linux

// Package probe runs inside a pod of underlayctl connectivity: Serve replies with a name, Ask
// runs trials and returns their results.
//
// It needs no permissions and no API server, and must never send packets other than those of the
// requested trials. Sources: IP_MTU_DISCOVER in ip(7), IPV6_MTU_DISCOVER in ipv6(7).
package probe
