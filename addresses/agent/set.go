package agent

import (
	"net/netip"
	"slices"
	"sync"

	"github.com/underlay-ccm/underlay/addresses"
)

// Set has addresses, and the ports on them where Services have endpoints. The zero Set is empty.
type Set struct {
	mu      sync.Mutex
	all     []netip.Addr
	ports   []netip.AddrPort
	changed chan struct{}
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

// Changed returns a channel that one goroutine may receive from after each change.
func (s *Set) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.channel()
}

func (s *Set) channel() chan struct{} {
	if s.changed == nil {
		s.changed = make(chan struct{}, 1)
	}
	return s.changed
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
	notify(s.channel())
}
