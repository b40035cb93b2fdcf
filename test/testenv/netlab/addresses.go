//go:build linux

package netlab

import (
	"net/netip"
	"slices"
)

// InternalIPs are the addresses by which other nodes reach the machine.
func (m *Machine) InternalIPs() []netip.Addr {
	if m.Private.IsValid() {
		return []netip.Addr{m.Private}
	}
	if m.Outside {
		return []netip.Addr{m.Public.IPv4}
	}
	return []netip.Addr{m.Public.IPv4, m.Public.IPv6}
}

// MachineAt returns the machine that has the address; nil if none has.
func (f *Lab) MachineAt(addr netip.Addr) *Machine {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.machines {
		if slices.Contains(m.Addresses(), addr) {
			return m
		}
	}
	return nil
}

// Addresses are all of the machine's that the outside or other nodes know.
func (m *Machine) Addresses() []netip.Addr {
	if m.BehindNAT {
		return []netip.Addr{m.Private}
	}
	addrs := []netip.Addr{m.Public.IPv4, m.Public.IPv6}
	if m.Private.IsValid() {
		addrs = append(addrs, m.Private)
	}
	return addrs
}
