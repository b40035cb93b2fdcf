package controller

import (
	"sync"
	"time"
)

// sooner is the shorter of two times to wait; 0: there is nothing to wait for.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// since remembers since when something is found again and again, by the UID of the Service that it
// is found at. It does not outlive the process.
type since[K comparable] struct {
	mu    sync.Mutex
	since map[string]map[K]time.Time
}

func newSince[K comparable]() *since[K] { return &since[K]{since: make(map[string]map[K]time.Time)} }

// look replaces what was found at the last look, and returns since when each is found.
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
