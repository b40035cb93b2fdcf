package agent

import (
	"net/netip"
	"time"
)

const (
	// silenceLimit is how long a neighbor may be unresponsive before it is reported as
	// unreachable. It is longer than a machine that is down stays Ready (kube-controller-manager,
	// --node-monitor-grace-period 50 s), or every node would report it at once.
	silenceLimit = time.Minute
	// probesAtOnce limits the probes of an update: by default the kernel has at most 1,024
	// neighbors of a family, and starts to drop them above 128
	// (net.ipv4.neigh.default.gc_thresh3 and 1).
	probesAtOnce = 64
	// answerTime is how long a probe takes: the kernel sends three requests, a second apart.
	answerTime = 4 * time.Second
)

// answers tracks which neighbors reply. It must not affect routing: an unresponsive neighbor
// keeps its route, because without it the packets would leave through the default route.
type answers struct {
	since    map[netip.Addr]time.Time // since when neighbors have been unresponsive
	answered map[netip.Addr]bool
}

// update takes the kernel's current neighbors, and whether each is unresponsive. It returns
// the peers to probe, and whether to update again soon.
func (a *answers) update(
	now time.Time, peers []peer, known map[netip.Addr]bool,
) (probe []peer, soon bool) {
	before := *a
	*a = answers{since: map[netip.Addr]time.Time{}, answered: make(map[netip.Addr]bool, len(peers))}
	for _, p := range peers {
		isSilent, found := known[p.addr]
		// The kernel drops neighbors without traffic.
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

func (a *answers) unresolved(now time.Time) map[netip.Addr]bool {
	found := map[netip.Addr]bool{}
	for addr, since := range a.since {
		if now.Sub(since) >= silenceLimit {
			found[addr] = true
		}
	}
	return found
}
