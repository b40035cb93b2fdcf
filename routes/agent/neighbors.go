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

// answers has since when neighbors have been unresponsive; the zero Time for those that replied.
// It must not affect routing: an unresponsive neighbor keeps its route, because without it the
// packets would leave through the default route.
type answers map[netip.Addr]time.Time

// update takes the kernel's current neighbors, and whether each is unresponsive. It returns
// the peers to probe, and whether to update again soon.
func (a *answers) update(
	now time.Time, peers []peer, known map[netip.Addr]bool,
) (probe []peer, soon bool) {
	updated, again := make(answers, len(peers)), []peer(nil)
	for _, p := range peers {
		silent, found := known[p.addr]
		since, tracked := (*a)[p.addr]
		replied := tracked && since.IsZero()
		// The kernel drops neighbors without traffic.
		if found && !silent || !found && replied {
			updated[p.addr] = time.Time{}
			continue
		}
		if found && (!tracked || replied) {
			since, tracked = now, true
		}
		soon = soon || !tracked || now.Sub(since) < silenceLimit
		if tracked {
			updated[p.addr] = since
			again = append(again, p)
		} else {
			probe = append(probe, p)
		}
	}
	*a = updated
	probe = append(probe, again...) // later, or many dead peers would keep others from being probed
	return probe[:min(len(probe), probesAtOnce)], soon
}

func (a answers) unresolved(now time.Time) map[netip.Addr]bool {
	found := map[netip.Addr]bool{}
	for addr, since := range a {
		if !since.IsZero() && now.Sub(since) >= silenceLimit {
			found[addr] = true
		}
	}
	return found
}
