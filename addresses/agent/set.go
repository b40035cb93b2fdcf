package agent

import (
	"context"
	"net/netip"
	"slices"
	"sync"

	"github.com/underlay-ccm/underlay/addresses"
)

// Set has addresses, and the ports on them where Services have endpoints.
type Set struct {
	mu       sync.Mutex
	all      []netip.Addr
	ports    []netip.AddrPort
	watchers map[*func()]bool
}

// All returns the addresses, sorted. The caller must not change the slice.
func (s *Set) All() []netip.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}

// Ports returns the ports where Services have endpoints, sorted. A packet that kube-proxy does not
// redirect there is early or for another node. The caller must not change the slice.
func (s *Set) Ports() []netip.AddrPort {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ports
}

// Watch calls changed at once and after each change, until ctx is done. changed must not block.
func (s *Set) Watch(ctx context.Context, changed func()) {
	s.mu.Lock()
	if s.watchers == nil {
		s.watchers = map[*func()]bool{}
	}
	s.watchers[&changed] = true
	s.mu.Unlock()
	changed()
	<-ctx.Done()
	s.mu.Lock()
	delete(s.watchers, &changed)
	s.mu.Unlock()
}

// Put replaces the addresses, and their ports by those of the ledger.
func (s *Set) Put(all []netip.Addr, ledger addresses.Ledger) {
	all = slices.Clone(all)
	slices.SortFunc(all, netip.Addr.Compare)
	all = slices.Compact(all)
	var ports []netip.AddrPort
	for _, addr := range all {
		entry, _ := ledger.Entry(addr)
		for _, share := range entry.Shares {
			for _, port := range share.Served {
				ports = append(ports, netip.AddrPortFrom(addr, uint16(port)))
			}
		}
	}
	slices.SortFunc(ports, netip.AddrPort.Compare)
	ports = slices.Compact(ports)
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Equal(s.all, all) && slices.Equal(s.ports, ports) {
		return
	}
	s.all, s.ports = all, ports
	for changed := range s.watchers {
		(*changed)()
	}
}
