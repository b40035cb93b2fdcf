package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Why Assign may give a Node nothing. One error can be several of them.
var (
	// ErrNoRoom is a family whose pools have no free node prefix left.
	ErrNoRoom = errors.New("no free node prefix left")
	// ErrNoPool is a family without an active pool for this Node.
	ErrNoPool = errors.New("no active pool matches the Node")
	// ErrNoOwn is a server without an own prefix that node prefixes can be cut from.
	ErrNoOwn = errors.New("the server has no usable IPv6 prefix of its own")
	// ErrSharedOwn is a server whose own prefix others have node prefixes in.
	ErrSharedOwn = errors.New("the server's own IPv6 prefix is in use by others")
)

// An Offer is what one Node may be given from.
type Offer struct {
	// Pools tells the names of the pools that are for this Node; nil means all.
	Pools func(name string) bool
	// Own is the server's own IPv6 prefix, usually a /64. The zero Prefix: it has none.
	Own netip.Prefix
	// Avoid are the addresses in it that the server or others use.
	Avoid []netip.Addr
}

func (o Offer) matches(s *pool) bool { return o.Pools == nil || o.Pools(s.Name) }

// Assign reserves one node prefix of every family for the Node and returns them in the order of
// the families. It is idempotent: who has something gets the same again. When it fails for one
// family, nothing of another is taken.
//
// A machine that comes back, under the same name and provider ID and while what it had is in
// quarantine, gets the same again, from draining pools too.
//
// The one exception to the first: a reservation that the Node was not observed with is replaced
// when writing it would be wrong, because another Node turned up with it, because it overlaps
// an exclusion, or because the pools no longer have it or have one more family. The old one
// stays held until the Node is observed, when it goes into quarantine, or until the Node is freed.
func (l *Ledger) Assign(node Node, offer Offer) ([]netip.Prefix, error) {
	h, known := l.holdings[node.UID]
	if known {
		l.name(h, node)
		l.setReleased(h, time.Time{})
		if h.observed || l.current(h) && !l.contested(h) {
			return slices.Clone(h.prefixes), nil
		}
	} else if back := l.returning(node, offer); back != nil {
		return slices.Clone(back.prefixes), nil
	}
	plan, err := l.plan(h, node, offer)
	if err != nil {
		return nil, fmt.Errorf("podCIDRs for Node %s: %w", node.Name, err)
	}
	l.grant(plan)
	h = l.meet(node)
	h.abandoned = append(h.abandoned, h.prefixes...)
	h.prefixes = nil
	for _, c := range plan {
		l.take(h, c)
	}
	return slices.Clone(h.prefixes), nil
}

// RoomFor returns what Assign would fail with for a Node that holds nothing and comes with this
// offer. Nothing is taken.
func (l *Ledger) RoomFor(offer Offer) error {
	_, err := l.plan(nil, Node{}, offer)
	return err
}

// choice is the node prefix of one family that a Node is to have, and where it comes from.
type choice struct {
	pool   *pool
	prefix netip.Prefix
}

// plan chooses for every family, or fails for all that have nothing, and changes nothing.
func (l *Ledger) plan(h *holding, node Node, offer Offer) ([]choice, error) {
	var plan []choice
	var errs []error
	near := RootObject
	for i, family := range l.families {
		c, err := l.choose(family, h, node, offer, near)
		plan = append(plan, c)
		errs = append(errs, err)
		if i == 0 && err == nil {
			near = l.layout.home(c.prefix)
		}
	}
	return plan, inOneLine(errs)
}

// choose returns the first pool of a family that has something for the Node, and of it rather what
// the same shard guards as the Node's other families.
func (l *Ledger) choose(family []*pool, h *holding, node Node, offer Offer, near int) (choice, error) {
	var full []string
	var errs []error
	matched := false
	for _, s := range family {
		if s.State != Active || !offer.matches(s) {
			continue
		}
		matched = true
		if s.Own {
			p, err := l.cut(s, h, node, offer)
			if err == nil {
				return choice{s, p}, nil
			}
			errs = append(errs, err)
		} else if p, ok := l.pickGuarded(s, near); ok {
			return choice{s, p}, nil
		} else if p, ok := l.pick(s); ok {
			return choice{s, p}, nil
		} else {
			full = append(full, s.Prefix.String())
		}
	}
	if !matched {
		return choice{}, fmt.Errorf("%w for %s: set another pool active, or give one a selector that this Node has (pools: %s)",
			ErrNoPool, familyName(family[0].ipv6()), names(family))
	}
	if len(full) > 0 {
		errs = append(errs, fmt.Errorf("%w in %s: delete Nodes that are gone, or configure a larger pool", ErrNoRoom, strings.Join(full, ", ")))
	}
	return choice{}, inOneLine(errs)
}

// inOneLine joins errors for messages that people read in one line. It returns nil if all are.
func inOneLine(errs []error) error {
	var all error
	for _, err := range errs {
		switch {
		case err == nil:
		case all == nil:
			all = err
		default:
			all = fmt.Errorf("%w; %w", all, err)
		}
	}
	return all
}

func (l *Ledger) take(h *holding, c choice) {
	if c.pool.Own {
		l.setOrigin(h, c.prefix, c.pool.Name)
	} else {
		c.pool.took(c.prefix)
	}
	h.prefixes = append(h.prefixes, c.prefix)
	l.claim(h, c.prefix)
}

// current reports whether the pools would still hand out what is reserved here.
func (l *Ledger) current(h *holding) bool {
	for _, family := range l.families {
		if !slices.ContainsFunc(h.prefixes, func(p netip.Prefix) bool { return p.Addr().Is6() == family[0].ipv6() }) {
			return false
		}
	}
	return !slices.ContainsFunc(h.prefixes, func(p netip.Prefix) bool { return !l.usable(h, p) })
}

// usable reports whether a prefix is one that the pools may have handed out, now too.
func (l *Ledger) usable(h *holding, p netip.Prefix) bool {
	_, wrong := l.misplaced(h, p)
	return !wrong
}

// returning finds what the same machine had before and puts it under the new UID: the latest,
// if it can be used whole. It returns nil if there is nothing of that kind.
func (l *Ledger) returning(node Node, offer Offer) *holding {
	var back *holding
	for _, h := range l.names[node.Name] {
		switch {
		case node.ProviderID == "" || h.node.ProviderID != node.ProviderID || !h.gone() || !l.suits(h, offer):
		case back == nil || h.released.After(back.released) || h.released.Equal(back.released) && h.node.UID < back.node.UID:
			back = h
		}
	}
	if back == nil {
		return nil
	}
	l.name(back, node)
	back.observed, back.prefixes = false, l.inOrder(back.prefixes)
	l.setReleased(back, time.Time{})
	return back
}

// suits reports whether all of a holding could be handed out under this offer, and nobody else
// claims anything of it. Where something was abandoned, the machine may have had that instead of
// what was reserved last, and a route to it may stand: all of it stays in quarantine.
func (l *Ledger) suits(h *holding, offer Offer) bool {
	if len(h.abandoned) > 0 || len(h.prefixes) != len(l.families) || !l.current(h) {
		return false
	}
	return !slices.ContainsFunc(h.prefixes, func(p netip.Prefix) bool {
		s := l.poolOf(h, p)
		return !offer.matches(s) || s.Own && !offer.holds(p) || len(l.overlaps(h, p)) > 0
	})
}

// inOrder sorts prefixes by the order of their families.
func (l *Ledger) inOrder(prefixes []netip.Prefix) []netip.Prefix {
	place := func(p netip.Prefix) int {
		return slices.IndexFunc(l.families, func(f []*pool) bool { return f[0].ipv6() == p.Addr().Is6() })
	}
	slices.SortStableFunc(prefixes, func(a, b netip.Prefix) int { return place(a) - place(b) })
	return prefixes
}

func familyName(ipv6 bool) string {
	if ipv6 {
		return "IPv6"
	}
	return "IPv4"
}

func names(family []*pool) string {
	var list []string
	for _, s := range family {
		list = append(list, s.Name+" "+s.State.String())
	}
	return strings.Join(list, ", ")
}
