package agent

import (
	"context"
	"net/netip"
	"slices"
	"sync"

	"github.com/underlay-ccm/underlay/addresses"
)

// Set are addresses that others follow, and their ports with traffic that stays on a node.
type Set struct {
	mu       sync.Mutex
	all      []netip.Addr
	ports    []netip.AddrPort
	watchers map[*func()]bool
}

// All are the addresses, sorted. The slice is not to be changed.
func (s *Set) All() []netip.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}

// Ports are those of Services with externalTrafficPolicy Local, sorted. kube-proxy may drop there
// what another node is to have. The slice is not to be changed.
func (s *Set) Ports() []netip.AddrPort {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ports
}

// Watch calls changed at once and after each change, until the context ends. It must not wait.
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

// Put replaces the set, whose ports the ledger has.
func (s *Set) Put(all []netip.Addr, ledger addresses.Ledger) {
	all = slices.Clone(all)
	slices.SortFunc(all, netip.Addr.Compare)
	all = slices.Compact(all)
	var ports []netip.AddrPort
	for _, addr := range all {
		entry, _ := ledger.Entry(addr)
		for _, share := range entry.Shares {
			for _, p := range share.Ports {
				if share.Local {
					ports = append(ports, netip.AddrPortFrom(addr, uint16(p.Number)))
				}
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
