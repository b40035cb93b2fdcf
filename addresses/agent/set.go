package agent

import (
	"context"
	"net/netip"
	"slices"
	"sync"
)

// Set is a set of addresses that others follow.
type Set struct {
	mu      sync.Mutex
	all     []netip.Addr
	changed []func()
}

// All are the addresses, sorted.
func (s *Set) All() []netip.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}

// Watch calls changed after each change until the context ends.
func (s *Set) Watch(ctx context.Context, changed func()) {
	s.mu.Lock()
	s.changed = append(s.changed, changed)
	s.mu.Unlock()
	<-ctx.Done()
}

func (s *Set) set(all []netip.Addr) {
	slices.SortFunc(all, netip.Addr.Compare)
	all = slices.Compact(all)
	s.mu.Lock()
	same := slices.Equal(s.all, all)
	s.all = all
	told := s.changed
	s.mu.Unlock()
	if same {
		return
	}
	for _, changed := range told {
		changed()
	}
}
