package layer2

import (
	"fmt"
	"net/netip"

	"github.com/underlay-ccm/underlay/addresses"
)

// Desired is the complete desired state of a node. Cluster distinguishes it from other clusters on
// the segment; if it is empty, only the members of New are cluster members.
type Desired struct {
	addresses.Assignment
	// Links are the usable interfaces. They must not be changed after Set.
	Links []Link
	// ReplyOn is the name of the link for addresses that are on no segment: a router there sends
	// their traffic only to this node and requests the hardware address first. They are answered for
	// without probes, announcements and defense. If empty, links have the addresses' prefixes.
	ReplyOn string
}

// Phase is the state of an address on a node.
type Phase string

const (
	// Probing sends probes for other holders and does not answer.
	Probing Phase = "Probing"
	// Holding answers and announces.
	Holding Phase = "Holding"
	// Leaving answers until the next holder is observed, for at most 15 seconds.
	Leaving Phase = "Leaving"
	// Refused leaves the address to an external host and probes for it every 30 seconds.
	Refused Phase = "Refused"
	// Yielded leaves the address to a claimant that may be its rightful holder according to a newer
	// ledger. The node takes the address again when no host answers for it.
	Yielded Phase = "Yielded"
	// OffSegment means that no link is on the address's segment.
	OffSegment Phase = "OffSegment"
)

// State is the state of an address on a node, with counters.
type State struct {
	Address netip.Addr
	Epoch   uint64
	Phase   Phase
	Link    string // name of the interface; empty if none
	// By is the hardware address of the other holder in Refused and Yielded, and in Holding of a
	// host that claims the address despite announcements; zero if there is none.
	By MAC
	// Friend is set if By is a cluster member.
	Friend bool
	// Young is set in Holding while an external host would still get the address back.
	Young bool
	// Trouble is the reason why the link can't be used; empty if it can.
	Trouble string
	// Sent counts the frames since the address was first desired.
	Sent map[Kind]int
}

// Report converts states to a node's report: the held addresses and the problems.
func Report(states []State) (held []addresses.Hold, problems []addresses.Problem) {
	for _, s := range states {
		switch s.Phase {
		case Probing, Yielded:
			if s.Trouble != "" {
				problems = append(problems, addresses.Problem{
					Address: s.Address, Reason: addresses.Failed, Text: s.Trouble,
				})
			}
		case Holding:
			held = append(held, addresses.Hold{Address: s.Address, Epoch: s.Epoch, Young: s.Young})
		case OffSegment:
			problems = append(problems, addresses.Problem{
				Address: s.Address, Reason: addresses.OffSegment,
				Text: fmt.Sprintf("no interface of this node that is up has a prefix with %s: give "+
					"the pool a range of the segment, or name the interface as an uplink", s.Address),
			})
		}
		if s.By != (MAC{}) && (s.Phase == Holding || !s.Friend) {
			problems = append(problems, addresses.Problem{
				Address: s.Address, Reason: addresses.InUse, By: s.By.String(),
				Text: inUse(s),
			})
		}
	}
	return held, problems
}

func inUse(s State) string {
	if s.Friend {
		return fmt.Sprintf("a machine of the cluster replies for %s on %s, although it should not, with the "+
			"hardware address %s: remove the address there; if kube-proxy runs in ipvs mode, set its "+
			"strictARP", s.Address, s.Link, s.By)
	}
	return fmt.Sprintf("a machine outside the cluster replies for %s on %s with the hardware "+
		"address %s: remove the address there, or take it out of the pool", s.Address, s.Link, s.By)
}
