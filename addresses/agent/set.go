package agent

import (
	"context"
	"net/netip"
	"slices"
	"sync"
)

// Set are addresses that others follow.
type Set struct {
	mu       sync.Mutex
	all      []netip.Addr
	watchers map[*func()]bool
}

// All are the addresses, sorted. The slice is not to be changed.
func (s *Set) All() []netip.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
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

// Put replaces the set.
func (s *Set) Put(all []netip.Addr) {
	all = slices.Clone(all)
	slices.SortFunc(all, netip.Addr.Compare)
	all = slices.Compact(all)
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Equal(s.all, all) {
		return
	}
	s.all = all
	for changed := range s.watchers {
		(*changed)()
	}
}
