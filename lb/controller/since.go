package controller

import (
	"sync"
	"time"
)

// sooner returns the shorter delay; 0 means no delay is pending.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// since records by Service UID since when something has been found without interruption. It does
// not survive a restart.
type since[K comparable] struct {
	mu    sync.Mutex
	since map[string]map[K]time.Time
}

func newSince[K comparable]() *since[K] {
	return &since[K]{
		since: make(map[string]map[K]time.Time),
	}
}

// look replaces the set of keys, and returns since when each has been in it.
func (s *since[K]) look(uid string, found []K, now time.Time) map[K]time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := make(map[K]time.Time, len(found))
	for _, k := range found {
		since, known := s.since[uid][k]
		if !known {
			since = now
		}
		next[k] = since
	}
	s.since[uid] = next
	if len(next) == 0 {
		delete(s.since, uid)
	}
	return next
}
