package agent

import (
	"maps"
	"net/netip"
	"time"
)

const (
	// silenceLimit is how long a neighbor may stay silent before it is called
	// unreachable: longer than it takes until a machine that went down is not
	// ready any more (kube-controller-manager, --node-monitor-grace-period 50 s),
	// or every node would report it at once.
	silenceLimit = time.Minute
	// probesAtOnce bounds what one update asks for: by default the kernel keeps at
	// most 1,024 neighbors of a family, and begins to drop them above 128
	// (net.ipv4.neigh.default.gc_thresh3 and 1).
	probesAtOnce = 64
	// answerTime is after which a probe has its answer: the kernel asks three
	// times, a second apart.
	answerTime = 4 * time.Second
)

// answers remembers which neighbors answer. No decision to route rests on it: a
// neighbor that is silent keeps its route, because without it the packets would
// leave through the default route.
type answers struct {
	since    map[netip.Addr]time.Time // silent, and from when on
	answered map[netip.Addr]bool
}

func newAnswers() *answers {
	return &answers{since: map[netip.Addr]time.Time{}, answered: map[netip.Addr]bool{}}
}

// update takes what the kernel knows of the peers' addresses now, and returns those
// to ask for and whether to update again soon.
func (a *answers) update(now time.Time, peers []netip.Addr, known map[netip.Addr]Neighbor) (probe []netip.Addr, soon bool) {
	current := make(map[netip.Addr]bool, len(peers))
	for _, addr := range peers {
		current[addr] = true
		n, found := known[addr]
		switch {
		case found && !n.Silent:
			a.answered[addr] = true
			delete(a.since, addr)
			continue
		case found:
			if _, silent := a.since[addr]; !silent {
				a.since[addr] = now
			}
			delete(a.answered, addr)
		case a.answered[addr]: // forgotten by the kernel for want of traffic
			continue
		}
		since, silent := a.since[addr]
		if !silent || now.Sub(since) < silenceLimit {
			soon = true
		}
		if len(probe) < probesAtOnce {
			probe = append(probe, addr)
		}
	}
	maps.DeleteFunc(a.since, func(addr netip.Addr, _ time.Time) bool { return !current[addr] })
	maps.DeleteFunc(a.answered, func(addr netip.Addr, _ bool) bool { return !current[addr] })
	return probe, soon
}

// unresolved are the neighbors that have been silent for too long.
func (a *answers) unresolved(now time.Time) map[netip.Addr]bool {
	found := map[netip.Addr]bool{}
	for addr, since := range a.since {
		if now.Sub(since) >= silenceLimit {
			found[addr] = true
		}
	}
	return found
}
