package bgp

import (
	"net/netip"
	"slices"
)

// Plan is the change from one Desired to another, to be applied in the order of its fields.
type Plan struct {
	// Restart: the node's ASN or router ID changed, so the speaker must restart. The other fields
	// then begin with no sessions.
	Restart  bool
	Announce []netip.Prefix
	// End are peers whose sessions end: removed peers, or peers with other settings.
	End      []Peer
	Begin    []Peer
	Withdraw []netip.Prefix
}

// Diff returns the plan from have to want. The zero Desired has no sessions.
func Diff(have, want Desired) Plan {
	if have.ASN != want.ASN || have.RouterID != want.RouterID {
		plan := Diff(Desired{ASN: want.ASN, RouterID: want.RouterID}, want)
		plan.Restart = true
		return plan
	}
	have, want = have.Canonical(), want.Canonical()
	changed := func(peers, others []Peer) []Peer {
		return slices.DeleteFunc(slices.Clone(peers), func(p Peer) bool {
			return have.RestartTime == want.RestartTime && slices.ContainsFunc(others, p.sameSession)
		})
	}
	return Plan{
		Announce: missing(want.Prefixes, have.Prefixes),
		End:      changed(have.Peers, want.Peers),
		Begin:    changed(want.Peers, have.Peers),
		Withdraw: missing(have.Prefixes, want.Prefixes),
	}
}

// missing returns the prefixes that are not among others, which are sorted.
func missing(prefixes, others []netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(prefixes), func(p netip.Prefix) bool {
		_, found := slices.BinarySearchFunc(others, p, netip.Prefix.Compare)
		return found
	})
}

// Empty reports whether the plan has no changes.
func (plan Plan) Empty() bool {
	return !plan.Restart && len(plan.Announce)+len(plan.End)+len(plan.Begin)+len(plan.Withdraw) == 0
}
