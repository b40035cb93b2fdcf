package config

import (
	"net/netip"
	"net/url"
)

// CheckServer returns an error if a pool contains the address of the API server. host is its
// URL, or its name or address with a port. If a node held that address, no other node could
// reach the API server, because members of the cluster yield addresses to each other.
func (a Addresses) CheckServer(host string) error {
	addr, known := ServerAddress(host)
	if !known {
		return nil
	}
	for _, p := range a.Pools {
		if p.Contains(addr) {
			return &Error{
				Field: p.Field, Value: addr.String(), Problem: "is where the API server is reached",
				Remedy: "leave this address out of the ranges",
			}
		}
	}
	return nil
}

// ServerAddress returns the address in a host of client-go, a URL or host and port, if it has one.
func ServerAddress(host string) (netip.Addr, bool) {
	name := host
	if u, err := url.Parse(host); err == nil && u.Host != "" {
		name = u.Hostname()
	} else if at, err := netip.ParseAddrPort(host); err == nil {
		name = at.Addr().String()
	}
	addr, err := netip.ParseAddr(name)
	return addr.Unmap().WithZone(""), err == nil
}
