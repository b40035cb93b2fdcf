package ipam

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
)

// A Node is an owner of prefixes. Two Nodes with one name and different UIDs are two owners:
// the UID decides, the name is for people.
type Node struct {
	Name string
	UID  string
}

// A Holding is what one Node has.
type Holding struct {
	Node     Node
	Prefixes []netip.Prefix // in the order of the families, or as observed
	// Observed tells that these are the Node's podCIDRs. Otherwise they are only reserved.
	Observed bool
}

// ErrNoRoom is what Assign fails with when a family has no free node prefix left.
var ErrNoRoom = errors.New("no free node prefix left")

// A Ledger knows which Node holds which prefixes, over all pools.
type Ledger struct {
	pools      []*Pool
	families   [][]*Pool // the pools by address family, in the order in which families first appear
	exclusions []netip.Prefix

	holdings map[string]*holding // by UID
	claims   map[netip.Prefix][]claim
	misfits  map[netip.Prefix]bool // the claimed prefixes that no pool carves
	arrivals uint64
}

// holding is what one UID has.
type holding struct {
	node     Node
	prefixes []netip.Prefix
	observed bool
	// abandoned are reservations that others collided with and that were therefore replaced.
	// They stay claimed: the request that writes them may still arrive.
	abandoned []netip.Prefix
}

// claim is one holder of a prefix. Others may claim the same, by hand or by another allocator:
// the first to arrive keeps it, and it becomes free only with the last.
type claim struct {
	holder  *holding
	arrival uint64
}

// NewLedger returns a Ledger in which everything but the exclusions is free. Pools are used in
// their order, and so are the families: the first pool's family comes first in every answer. It
// rejects impossible and overlapping pools, and pools that the exclusions cover, all at once.
func NewLedger(pools []PoolConfig, exclusions []netip.Prefix) (*Ledger, error) {
	l := &Ledger{
		exclusions: sorted(canonicalAll(exclusions)),
		holdings:   map[string]*holding{},
		claims:     map[netip.Prefix][]claim{},
		misfits:    map[netip.Prefix]bool{},
	}
	if len(pools) == 0 {
		return nil, errors.New("no pools: at least one prefix is needed to carve node prefixes from")
	}
	var errs []error
	for _, e := range exclusions {
		if !e.IsValid() {
			errs = append(errs, fmt.Errorf("exclusion %q: not a prefix: write an address and a length, such as 10.96.0.0/12", e))
		}
	}
	for _, config := range pools {
		if err := l.add(config); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *Ledger) add(config PoolConfig) error {
	pool, err := NewPool(config)
	if err != nil {
		return err
	}
	for _, other := range l.pools {
		if other.Prefix().Overlaps(config.Prefix) {
			return fmt.Errorf("pool %s overlaps pool %s: give each its own range", config.Prefix, other.Prefix())
		}
	}
	for _, e := range l.exclusions {
		pool.Exclude(e)
	}
	if pool.Counts().Free == 0 {
		return fmt.Errorf("pool %s: the exclusions leave nothing of it: move the pool or correct the exclusions (%s)",
			config.Prefix, join(l.exclusions))
	}
	l.pools = append(l.pools, pool)
	i := slices.IndexFunc(l.families, func(f []*Pool) bool { return sameFamily(f[0].Prefix(), pool.Prefix()) })
	if i < 0 {
		l.families = append(l.families, []*Pool{pool})
	} else {
		l.families[i] = append(l.families[i], pool)
	}
	return nil
}

// Observe records the podCIDRs that a Node really has, whatever they are. They replace what was
// reserved for that UID. Where two Nodes have overlapping ones, the one observed or assigned
// first keeps it and the other is warned about, so observe existing Nodes oldest first.
// Observing the same again changes nothing and returns the warnings as they are now; observing
// nothing at all changes nothing.
func (l *Ledger) Observe(node Node, prefixes []netip.Prefix) []Warning {
	prefixes = canonicalAll(prefixes)
	if len(prefixes) == 0 {
		return nil
	}
	h := l.holding(node)
	before := h.all()
	h.prefixes, h.observed, h.abandoned = prefixes, true, nil
	for _, p := range prefixes {
		if !slices.Contains(before, p) {
			l.claim(h, p)
		}
	}
	for _, p := range before {
		if !slices.Contains(prefixes, p) {
			l.drop(h, p)
		}
	}
	return l.warnings(h)
}

// Assign reserves one node prefix of every family for the Node and returns them in the order of
// the families. It is idempotent: who has something gets the same again. When a family is full
// it fails with ErrNoRoom, and nothing of the other is taken.
//
// The one exception: when another Node was observed with what is reserved here, the reservation
// is replaced, because writing it would make a duplicate. The old one stays out of circulation
// until the Node is observed or released.
func (l *Ledger) Assign(node Node) ([]netip.Prefix, error) {
	h, known := l.holdings[node.UID]
	if known && (h.observed || !l.contested(h)) {
		return slices.Clone(h.prefixes), nil
	}
	if err := l.full(); err != nil {
		return nil, fmt.Errorf("podCIDRs for Node %s: %w", node.Name, err)
	}
	h = l.holding(node)
	h.abandoned = append(h.abandoned, h.prefixes...)
	h.prefixes = nil
	for _, family := range l.families {
		for _, pool := range family {
			if p, ok := pool.Take(node.UID); ok {
				h.prefixes = append(h.prefixes, p)
				l.claim(h, p)
				break
			}
		}
	}
	return slices.Clone(h.prefixes), nil
}

// Release ends everything that the Node with this UID holds and returns it, sorted. What other
// Nodes hold as well stays theirs. Releasing an unknown UID does nothing.
func (l *Ledger) Release(uid string) []netip.Prefix {
	h, ok := l.holdings[uid]
	if !ok {
		return nil
	}
	delete(l.holdings, uid)
	held := sorted(h.all())
	for _, p := range held {
		l.drop(h, p)
	}
	return held
}

// Lookup returns what the Node with this UID holds.
func (l *Ledger) Lookup(uid string) (Holding, bool) {
	h, ok := l.holdings[uid]
	if !ok {
		return Holding{}, false
	}
	return Holding{Node: h.node, Prefixes: slices.Clone(h.prefixes), Observed: h.observed}, true
}

// Counts returns the state of every pool, in the order of the pools.
func (l *Ledger) Counts() []Counts {
	counts := make([]Counts, len(l.pools))
	for i, pool := range l.pools {
		counts[i] = pool.Counts()
	}
	return counts
}

// Room returns how many more Nodes can be given prefixes of all families.
func (l *Ledger) Room() int {
	room := math.MaxInt
	for _, family := range l.families {
		room = min(room, freeIn(family))
	}
	return room
}

// full returns an error that names the pools of every family without a free node prefix.
func (l *Ledger) full() error {
	var full []netip.Prefix
	for _, family := range l.families {
		if freeIn(family) > 0 {
			continue
		}
		for _, pool := range family {
			full = append(full, pool.Prefix())
		}
	}
	if len(full) == 0 {
		return nil
	}
	return fmt.Errorf("%w in %s: delete Nodes that are gone, or configure a larger pool", ErrNoRoom, join(full))
}

func (l *Ledger) holding(node Node) *holding {
	h, ok := l.holdings[node.UID]
	if !ok {
		h = &holding{}
		l.holdings[node.UID] = h
	}
	h.node = node
	return h
}

// all returns everything that the holding keeps from being handed out.
func (h *holding) all() []netip.Prefix {
	return slices.Concat(h.prefixes, h.abandoned)
}

func freeIn(family []*Pool) int {
	n := 0
	for _, pool := range family {
		n += pool.Counts().Free
	}
	return n
}

func sameFamily(a, b netip.Prefix) bool {
	return a.Addr().BitLen() == b.Addr().BitLen()
}

func join(prefixes []netip.Prefix) string {
	text := make([]string, len(prefixes))
	for i, p := range prefixes {
		text[i] = p.String()
	}
	return strings.Join(text, ", ")
}
