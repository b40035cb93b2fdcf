package agent

import (
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

// update takes the neighbors that the kernel knows now, and whether each is silent. It returns those
// of the peers to ask for, and whether to update again soon.
func (a *answers) update(
	now time.Time, peers []peer, known map[netip.Addr]bool,
) (probe []peer, soon bool) {
	before := *a
	*a = answers{since: map[netip.Addr]time.Time{}, answered: make(map[netip.Addr]bool, len(peers))}
	for _, p := range peers {
		isSilent, found := known[p.addr]
		// The kernel forgets a neighbor for want of traffic.
		if found && !isSilent || !found && before.answered[p.addr] {
			a.answered[p.addr] = true
			continue
		}
		since, silent := before.since[p.addr]
		if found && !silent {
			since, silent = now, true
		}
		if silent {
			a.since[p.addr] = since
		}
		if !silent || now.Sub(since) < silenceLimit {
			soon = true
		}
		if len(probe) < probesAtOnce {
			probe = append(probe, p)
		}
	}
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
