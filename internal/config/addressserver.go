package config

import (
	"net/netip"
	"net/url"
)

// CheckServer refuses pools with the address that the API server is reached at. host is its URL, or
// its name or address with a port. If a node answered for that address, no other would reach the API
// server any more: machines of the cluster give way to each other.
func (a Addresses) CheckServer(host string) error {
	addr, known := serverAddress(host)
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

// serverAddress is the address in a host as client-go has it: a URL, or host and port. Not known: it
// has a name.
func serverAddress(host string) (netip.Addr, bool) {
	name := host
	if u, err := url.Parse(host); err == nil && u.Host != "" {
		name = u.Hostname()
	} else if at, err := netip.ParseAddrPort(host); err == nil {
		name = at.Addr().String()
	}
	addr, err := netip.ParseAddr(name)
	return addr.Unmap().WithZone(""), err == nil
}
