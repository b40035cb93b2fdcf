package agent

import (
	"net/netip"
	"time"
)

const (
	// patience is how long a neighbor may stay silent before it is called
	// unreachable: longer than it takes until a machine that went down is not
	// ready any more (kube-controller-manager, --node-monitor-grace-period 50 s),
	// or every node would complain of it at once.
	patience = time.Minute
	// probesAtOnce bounds what one look asks for: by default the kernel keeps at
	// most 1,024 neighbors of a family, and begins to drop them above 128
	// (net.ipv4.neigh.default.gc_thresh3 and 1).
	probesAtOnce = 64
	// answerTime is after which a probe has its answer: the kernel asks three
	// times, a second apart.
	answerTime = 4 * time.Second
)

// doubts remembers which neighbors don't answer. It is no truth that a decision
// to route rests on: a neighbor that is silent keeps its route, because without
// it the packets would leave through the default route.
type doubts struct {
	since    map[netip.Addr]time.Time // silent, and from when on
	answered map[netip.Addr]bool
}

func newDoubts() *doubts {
	return &doubts{since: map[netip.Addr]time.Time{}, answered: map[netip.Addr]bool{}}
}

// look takes what the kernel knows of the peers' addresses now, and returns those
// to ask for and whether to look again soon.
func (d *doubts) look(now time.Time, peers []netip.Addr, known map[netip.Addr]Neighbor) (probe []netip.Addr, soon bool) {
	current := make(map[netip.Addr]bool, len(peers))
	for _, addr := range peers {
		current[addr] = true
		n, found := known[addr]
		switch {
		case found && !n.Silent:
			d.answered[addr] = true
			delete(d.since, addr)
			continue
		case found:
			if _, silent := d.since[addr]; !silent {
				d.since[addr] = now
			}
			delete(d.answered, addr)
		case d.answered[addr]: // forgotten by the kernel for want of traffic
			continue
		}
		since, silent := d.since[addr]
		if !silent || now.Sub(since) < patience {
			soon = true
		}
		if len(probe) < probesAtOnce {
			probe = append(probe, addr)
		}
	}
	for addr := range d.since {
		if !current[addr] {
			delete(d.since, addr)
		}
	}
	for addr := range d.answered {
		if !current[addr] {
			delete(d.answered, addr)
		}
	}
	return probe, soon
}

// unresolved are the neighbors that have been silent for too long.
func (d *doubts) unresolved(now time.Time) map[netip.Addr]bool {
	found := map[netip.Addr]bool{}
	for addr, since := range d.since {
		if now.Sub(since) >= patience {
			found[addr] = true
		}
	}
	return found
}
