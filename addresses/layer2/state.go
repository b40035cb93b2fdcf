package layer2

import (
	"fmt"
	"net/netip"

	"github.com/underlay-ccm/underlay/addresses"
)

// Desired is what a machine should do, as a whole.
type Desired struct {
	// Cluster tells machines of this cluster from those of others on the same segment: something
	// that no other cluster has, such as the UID of the object that the ledger is stored in. Empty:
	// only Config.Friend knows the cluster's machines.
	Cluster string
	// Links are the interfaces that may be used.
	Links []Link
	// Hold are the addresses that the ledger gives to this machine.
	Hold []Want
	// Elsewhere are the other addresses that Services have: those that the ledger gives to other
	// machines, or to none so far. What is held and in neither list is let go at once: nobody wants
	// it any more.
	Elsewhere []netip.Addr
	// Doubt: nobody knows whether the ledger still says this. Nothing is given up for that alone;
	// but whoever else claims a held address may be right.
	Doubt bool
}

// Want is an address that a machine is to hold.
type Want struct {
	Address netip.Addr
	Epoch   uint64 // the ledger's
	// Held: a machine of the cluster has held it. Before one has, anybody could have the address: it
	// is probed for longer, and given back to a stranger that answers late.
	Held bool
	// Resumed: this machine held it by this epoch until a moment ago, and goes on. Without doubt it
	// is announced at once, and probed for at the same time.
	Resumed bool
	// AnswerOn names the link of an address that is on no segment: a router there sends its traffic
	// to one machine alone, and asks that one for the hardware address first. It is answered for as
	// long as it is wanted; nobody is probed, told or resisted. Empty: the link is the one whose
	// prefix has the address.
	AnswerOn string
}

// Phase is what a machine does about an address.
type Phase string

// The phases.
const (
	// Probing: it asks whether somebody has the address, and answers nobody.
	Probing Phase = "Probing"
	// Holding: it answers and announces.
	Holding Phase = "Holding"
	// Leaving: another one is to hold it; until that one is heard, or 15 seconds are over, it
	// answers.
	Leaving Phase = "Leaving"
	// Refused: a stranger has it. It is probed for every 30 seconds.
	Refused Phase = "Refused"
	// Yielded: it was given up to somebody who claims it and may be right: the ledger's newest
	// state is not known. It is taken again if nobody answers for it any more.
	Yielded Phase = "Yielded"
	// OffSegment: no link is on its segment.
	OffSegment Phase = "OffSegment"
)

// State is what a machine does about one address, and what happened.
type State struct {
	Address netip.Addr
	Epoch   uint64
	Phase   Phase
	Link    string // the interface's name; empty: none
	// By is who claims it, by hardware address: whoever has it in Refused and Yielded, and in
	// Holding somebody who claims it although it was announced again. Zero: nobody.
	By MAC
	// Friend: By is a machine of the cluster.
	Friend bool
	// Young: in Holding, it is given back to a stranger that shows up.
	Young bool
	// Trouble says why nothing can be heard or said on the link; empty: all is well.
	Trouble string
	// What was sent for it since it was first wanted.
	Answers, Announcements, Probes uint64
}

// Totals count what a Responder did about all addresses since it was made.
type Totals struct {
	Answers, Announcements, Probes uint64
	// Conflicts are the times that an address was found with somebody who is not to have it: it
	// was refused, or given up, or claimed on although it was announced again.
	Conflicts uint64
}

// Report says of states what a node reports: what it holds, and what stands against the others.
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
		return fmt.Sprintf("a machine of the cluster that should not answers for %s on %s with the "+
			"hardware address %s: remove the address there; if kube-proxy runs in ipvs mode, set its "+
			"strictARP", s.Address, s.Link, s.By)
	}
	return fmt.Sprintf("a machine that is none of the cluster's answers for %s on %s with the hardware "+
		"address %s: remove the address there, or take it out of the pool", s.Address, s.Link, s.By)
}
