// Package wireguard has the machine's WireGuard device: it implements agent.Tunnels for the
// kernel's WireGuard (Linux 5.6 and later), by netlink and wgctrl.
//
// The device outlives the process, so that an update of the agent drops no packet. The package
// must never change an endpoint that works: a peer behind NAT has one that only the device has
// observed. Nor may it log or return a private key, or
// log a pre-shared one.
package wireguard
