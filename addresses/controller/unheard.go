package controller

import (
	"time"
)

const (
	// unheardFor is how long the API server may not hear a node's kubelet before that alone counts
	// against the node. If it hears nobody any more, all nodes become unknown within this time: each
	// kubelet tells of itself every 10 s.
	unheardFor = 20 * time.Second
)

// unheard are the nodes whose kubelet the API server does not hear (Ready is Unknown), and since
// when. That says less of a node than it seems to: others may hear it well, and where the API
// server is cut off from all of them, each one that is believed to be gone leaves more to the next.
type unheard map[string]time.Time

// learn remembers since when, and says which nodes are spared: what they hold stays with them.
//
// A node is spared for a while if other nodes watch it: they say sooner than its kubelet whether it
// is gone. When half of the nodes are unheard, the API server's word counts for none of them.
func (u unheard) learn(f *fleet) {
	watched, now := 0, make(map[string]bool)
	for _, m := range f.members {
		if m.ready && m.reports {
			watched++
		}
		if m.unheard {
			now[m.name] = true
		}
	}
	for name := range u {
		if !now[name] {
			delete(u, name)
		}
	}
	most := len(now) > 1 && 2*len(now) >= len(f.members)
	for i := range f.members {
		m := &f.members[i]
		if !m.unheard {
			continue
		}
		if _, known := u[m.name]; !known || most { // when it hears again, not all come back at once
			u[m.name] = f.now
		}
		if m.unfit == whyNotReady && (most || watched > 0 && f.now.Before(u[m.name].Add(unheardFor))) {
			m.unfit, m.spared = "", true
		}
	}
}

// next is when a node is spared no longer; zero: none is.
func (u unheard) next(now time.Time) (first time.Time) {
	for _, since := range u {
		if at := since.Add(unheardFor); at.After(now) && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}
