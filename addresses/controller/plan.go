package controller

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/addresses"
)

// view is the input of a pass.
type view struct {
	services   map[types.UID]*corev1.Service
	namespaces map[string]labels.Set
	slices     map[types.NamespacedName][]*discoveryv1.EndpointSlice
	fleet      fleet
}

type plan struct {
	view
	pools    []Pool
	request  map[types.UID]request // of served Services
	ledger   addresses.Ledger
	refusals map[string][]addresses.Refusal // by UID
	eligible map[netip.Addr]addresses.Eligible
	moves    []addresses.Move
	why      map[netip.Addr]string // reasons of moves
}

// newPlan assigns addresses and chooses their holders, based on the stored ledger.
func newPlan(v view, stored addresses.Ledger, pools []Pool, w selection, lost bool) plan {
	p := plan{
		view: v, pools: pools, request: make(map[types.UID]request),
		refusals: make(map[string][]addresses.Refusal),
	}
	var claims []addresses.Claim
	for uid, svc := range v.services {
		if w.wanted(svc, stored) {
			a := requestOf(svc, pools, v.namespaces, stored.Of(string(uid)))
			a.Endpoints = slices.ContainsFunc(v.slices[types.NamespacedName{
				Namespace: svc.Namespace, Name: svc.Name,
			}], populated)
			p.request[uid] = a
			claims = append(claims, a.Claim)
		}
	}
	assigned, refusals := stored.Assign(free(pools, v.fleet.taken()), claims)
	for _, r := range refusals {
		p.refusals[r.UID] = append(p.refusals[r.UID], r)
	}
	if lost {
		assigned = assigned.Resume(v.fleet.reports())
	}
	p.place(assigned.Witness(v.fleet.reports()))
	return p
}

func (p *plan) place(assigned addresses.Ledger) {
	p.eligible = make(map[netip.Addr]addresses.Eligible)
	for _, e := range assigned.Entries() {
		if pool, known := poolOf(p.pools, e.Address); known && len(e.Shares) > 0 {
			p.eligible[e.Address] = p.fleet.eligible(e, pool, p.serving(e))
		}
	}
	p.ledger, p.moves = assigned.Place(p.eligible)
	p.why = make(map[netip.Addr]string)
	for _, m := range p.moves {
		before, _ := assigned.Entry(m.Address)
		p.why[m.Address] = p.whyMoved(before, m)
	}
}

// serving returns the nodes with endpoints for an address if its traffic is local.
func (p *plan) serving(e addresses.Entry) serving {
	if !e.Local() {
		return nil
	}
	var all []*discoveryv1.EndpointSlice // of the same pods, but a Service's slices may lag
	for _, s := range e.Shares {
		all = append(all, p.slices[types.NamespacedName{Namespace: s.Namespace, Name: s.Name}]...)
	}
	return servingOf(all, addresses.FamilyOf(e.Address))
}

func (p *plan) whyMoved(e addresses.Entry, m addresses.Move) string {
	switch {
	case m.To == "":
		return whyReleased
	case m.From == "":
		return whyAssigned
	}
	if why := p.unheld(e); why != "" {
		return why
	}
	return whyDraining
}

// unheld returns the reason against the node that holds an address; empty if there is none or if
// nodes hold the address together.
func (p *plan) unheld(e addresses.Entry) string {
	pool, known := poolOf(p.pools, e.Address)
	switch {
	case len(e.Nodes) > 0 || !known:
		return ""
	case e.Holder == "":
		return whyAssigned
	}
	m, there := p.fleet.member(e.Holder)
	if !there {
		return whyGone
	}
	return p.fleet.ineligibleReason(m, e, pool, p.serving(e))
}

// freed returns the Services that lose addresses, which a live read must confirm.
func (p *plan) freed(stored addresses.Ledger) (shares []addresses.Share) {
	for _, e := range stored.Entries() {
		for _, s := range e.Shares {
			known := slices.ContainsFunc(shares, func(other addresses.Share) bool {
				return other.UID == s.UID
			})
			if !known && !slices.Contains(p.ledger.Of(s.UID), e.Address) {
				shares = append(shares, s)
			}
		}
	}
	return shares
}

func (p *plan) notes(uid types.UID) []note {
	a := p.request[uid]
	notes := slices.Clone(a.notes)
	have := p.ledger.Of(string(uid))
	for _, r := range p.refusals[string(uid)] {
		n := a.refused(r)
		_, has := addresses.OfFamily(have, r.Family)
		// No pool has the family, and spec.ipFamilyPolicy does not require it.
		n.quiet = !a.All && r.Reason == addresses.NoPool && !has && len(have) > 0
		notes = append(notes, n)
	}
	for _, address := range have {
		if e, known := p.ledger.Entry(address); known {
			notes = append(notes, p.holding(e)...)
		}
	}
	return notes
}
