package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Reasons for which Assign refuses a Node. An error can wrap several of them.
var (
	// ErrNoRoom means that the pools of a family have no free node prefix left.
	ErrNoRoom = errors.New("no free node prefix left")
	// ErrNoPool means that no active pool of a family matches the Node.
	ErrNoPool = errors.New("no active pool matches the Node")
	// ErrNoOwn means that the server has no prefix of its own to cut node prefixes from.
	ErrNoOwn = errors.New("the server has no usable IPv6 prefix of its own")
	// ErrSharedOwn means that another server's Node holds a prefix in the server's own prefix.
	ErrSharedOwn = errors.New("the server's own IPv6 prefix is in use by others")
)

// An Offer limits what Assign may give to a Node.
type Offer struct {
	// Pools reports whether a pool may serve this Node; nil allows all pools.
	Pools func(name string) bool
	// Own is the server's own IPv6 prefix, usually a /64, or the zero Prefix.
	Own netip.Prefix
	// Avoid holds the addresses within Own that are in use.
	Avoid []netip.Addr
}

func (o Offer) matches(s *pool) bool { return o.Pools == nil || o.Pools(s.Name) }

// Assign reserves one node prefix of every family for the Node and returns them in the order
// of the families. It is idempotent: a Node that holds prefixes gets the same again. If one
// family fails, no prefix of another family is reserved.
//
// A machine that returns under the same name and provider ID while its prefixes are in
// quarantine gets them again, from draining pools too.
//
// The exception to idempotence is a reservation not yet observed on the Node. It is replaced
// if another Node was observed with it, if it overlaps an exclusion, or if the pools no longer
// carve it or have one more family. The old reservation stays held until the Node is observed,
// when it enters quarantine, or until the Node is freed.
func (l *Ledger) Assign(node Node, offer Offer) ([]netip.Prefix, error) {
	h, known := l.holdings[node.UID]
	if known {
		l.name(h, node)
		l.setReleased(h, time.Time{})
		if h.Observed || l.current(h) && !l.contested(h) {
			return slices.Clone(h.Prefixes), nil
		}
	} else if back := l.returning(node, offer); back != nil {
		return slices.Clone(back.Prefixes), nil
	}
	plan, err := l.plan(h, node, offer)
	if err != nil {
		return nil, fmt.Errorf("podCIDRs for Node %s: %w", node.Name, err)
	}
	h = l.meet(node)
	h.Abandoned = append(h.Abandoned, h.Prefixes...)
	h.Prefixes = nil
	for _, c := range plan {
		if !c.pool.Own {
			c.pool.took(c.prefix)
		}
		h.Prefixes = append(h.Prefixes, c.prefix)
		l.claim(h, c.prefix, c.pool.Name)
	}
	return slices.Clone(h.Prefixes), nil
}

type choice struct {
	pool   *pool
	prefix netip.Prefix
}

// plan chooses a node prefix for every family, or fails with the errors of all families.
func (l *Ledger) plan(h *Holding, node Node, offer Offer) ([]choice, error) {
	var plan []choice
	var errs []error
	near := anyShard
	for _, family := range l.families {
		c, err := l.choose(family, h, node, offer, near)
		plan = append(plan, c)
		errs = append(errs, err)
		if near == anyShard && err == nil {
			near = shardOf(c.prefix)
		}
	}
	return plan, errors.Join(errs...)
}

// choose returns a node prefix of the first pool in a family that has one for the Node. It
// prefers prefixes that the same shard records as those of the Node's other families.
func (l *Ledger) choose(
	family []*pool, h *Holding, node Node, offer Offer, near int,
) (choice, error) {
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
		} else if p, ok := l.pick(s, near); ok {
			return choice{s, p}, nil
		} else {
			full = append(full, s.Prefix.String())
		}
	}
	if !matched {
		return choice{}, fmt.Errorf("%w for %s: set another pool active, "+
			"or give one a selector that this Node has (pools: %s)",
			ErrNoPool, familyName(family[0].ipv6()), names(family))
	}
	if len(full) > 0 {
		errs = append(errs, fmt.Errorf("%w in %s: delete Nodes that are gone, or configure a larger pool",
			ErrNoRoom, strings.Join(full, ", ")))
	}
	return choice{}, errors.Join(errs...)
}

// current reports whether the pools would still hand out the holding's prefixes.
func (l *Ledger) current(h *Holding) bool {
	for _, family := range l.families {
		if !slices.ContainsFunc(h.Prefixes, func(p netip.Prefix) bool {
			return p.Addr().Is6() == family[0].ipv6()
		}) {
			return false
		}
	}
	return !slices.ContainsFunc(h.Prefixes, func(p netip.Prefix) bool {
		_, wrong := l.misplaced(h, p)
		return wrong
	})
}

// returning finds the most recently released holding of the same machine that can be restored
// in full and moves it to the new UID. It returns nil if there is none.
func (l *Ledger) returning(node Node, offer Offer) *Holding {
	var back *Holding
	for _, h := range l.names[node.Name] {
		switch {
		case node.ProviderID == "" || h.Node.ProviderID != node.ProviderID || !h.gone() ||
			!l.suits(h, offer):
		case back == nil || h.Released.After(back.Released) ||
			h.Released.Equal(back.Released) && h.Node.UID < back.Node.UID:
			back = h
		}
	}
	if back == nil {
		return nil
	}
	l.name(back, node)
	back.Observed, back.Prefixes = false, l.inOrder(back.Prefixes)
	l.setReleased(back, time.Time{})
	return back
}

// suits reports whether the offer allows all of a holding and no other holding claims any of
// it. A holding with abandoned prefixes never suits: the machine may have had those instead of
// its last reservation, and a route to them may exist, so all of it stays in quarantine.
func (l *Ledger) suits(h *Holding, offer Offer) bool {
	if len(h.Abandoned) > 0 || len(h.Prefixes) != len(l.families) || !l.current(h) {
		return false
	}
	return !slices.ContainsFunc(h.Prefixes, func(p netip.Prefix) bool {
		s := l.poolOf(h, p)
		return !offer.matches(s) || s.Own && !offer.holds(p) || len(l.overlaps(h, p)) > 0
	})
}

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
