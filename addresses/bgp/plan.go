package bgp

import (
	"slices"

	"github.com/underlay-ccm/underlay/addresses"
)

// Plan is the change from one Desired to another, to be applied in the order of its fields.
type Plan struct {
	// Restart: the node's ASN or router ID changed, so the speaker must restart. The other fields
	// then begin with no sessions.
	Restart  bool
	Announce []Path
	// End are peers whose sessions end: removed peers, or peers with other settings.
	End      []Peer
	Begin    []Session
	Withdraw []Path
}

// Session is a peer, and the Offer of the session with it.
type Session struct {
	Peer
	Offers Offer
}

// Offer has the node's capabilities in a session.
type Offer struct {
	IPv4, IPv6 bool
	// RestartSeconds is Desired.RestartTime.
	RestartSeconds uint16
}

// Diff returns the plan from have to want. The zero Desired has no sessions.
func Diff(have, want Desired) Plan {
	if have.ASN != want.ASN || have.RouterID != want.RouterID {
		plan := Diff(Desired{ASN: want.ASN, RouterID: want.RouterID}, want)
		plan.Restart = true
		return plan
	}
	var plan Plan
	plan.diffPeers(have, want)
	old, paths := have.Paths(), want.Paths()
	for _, p := range paths {
		if !slices.Contains(old, p) {
			plan.Announce = append(plan.Announce, p)
		}
	}
	for _, p := range old {
		// A path with another next hop replaces this one (an implicit withdrawal).
		if _, stays := slices.BinarySearchFunc(paths, p, Path.compare); !stays {
			plan.Withdraw = append(plan.Withdraw, p)
		}
	}
	return plan
}

func (plan *Plan) diffPeers(have, want Desired) {
	old := have.Sorted()
	for _, p := range want.Sorted() {
		session := Session{p, want.offer(p)}
		i := slices.IndexFunc(old, func(o Peer) bool { return o.Name == p.Name })
		if i < 0 {
			plan.Begin = append(plan.Begin, session)
			continue
		}
		o := old[i]
		old = slices.Delete(old, i, i+1)
		if !o.sameSession(p) || have.offer(o) != session.Offers {
			plan.End = append(plan.End, o)
			plan.Begin = append(plan.Begin, session)
		}
	}
	plan.End = append(plan.End, old...)
	slices.SortFunc(plan.End, func(a, b Peer) int { return a.Address.Compare(b.Address) })
}

func (d Desired) offer(p Peer) Offer {
	carries := func(f addresses.Family) bool {
		hop := d.nextHop(f)
		return hop.IsValid() && (f == addresses.FamilyOf(p.Address) || !hop.IsUnspecified())
	}
	return Offer{
		IPv4: carries(addresses.IPv4), IPv6: carries(addresses.IPv6),
		RestartSeconds: uint16(d.RestartTime.Seconds()),
	}
}

// Empty reports whether the plan has no changes.
func (plan Plan) Empty() bool {
	return !plan.Restart && len(plan.Announce)+len(plan.End)+len(plan.Begin)+len(plan.Withdraw) == 0
}
