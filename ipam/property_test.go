package ipam

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var (
	comparePrefixes = cmp.Options{
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
		cmpopts.EquateEmpty(),
	}
	// smallPools are the configurations of consecutive processes of one cluster.
	smallPools = [][]PoolConfig{
		{
			{Name: "v4", Prefix: pfx("10.0.0.0/25"), NodeMask: 28},
			{Name: "v6", Prefix: pfx("fd00:0:0:10::/61"), NodeMask: 64},
			{Name: "more", Prefix: pfx("10.0.1.0/27"), NodeMask: 29},
			{Name: "own", NodeMask: 124, Own: true},
		},
		{
			{Name: "own", NodeMask: 124, Own: true},
			{Name: "v4", Prefix: pfx("10.0.0.0/25"), NodeMask: 27},
			{Name: "v6", Prefix: pfx("fd00:0:0:10::/61"), NodeMask: 64, State: Draining},
		},
		{
			{Name: "more", Prefix: pfx("10.0.1.0/27"), NodeMask: 29, State: Draining},
			{Name: "large", Prefix: pfx("10.0.0.0/24"), NodeMask: 28},
		},
		{
			{Name: "v6", Prefix: pfx("fd00:0:0:10::/61"), NodeMask: 65},
			{Name: "v4", Prefix: pfx("10.0.0.0/25"), NodeMask: 28},
		},
	}
	smallExclusions = [][]netip.Prefix{
		prefixes("10.0.0.20/30", "10.0.1.8/29", "fd00:0:0:12::/63"),
		prefixes("10.0.0.20/30", "10.0.0.0/27", "2001:db8::120/123"),
		nil,
		prefixes("10.0.0.64/28", "fd00:0:0:17:1::/80", "2001:db8::/64"),
	}
	misfits = prefixes(
		"10.0.0.0/26", "10.0.0.64/27", "10.0.0.0/23", "10.0.0.100/32", "10.0.1.0/30", "192.168.7.0/24",
		"fd00:0:0:10::/60", "fd00:0:0:14::/63", "fd00:0:0:16:8000::/65", "2001:db8::/64", "2001:db8::110/124", "2001:db8::148/125",
	)
	smallOwn = []netip.Prefix{{}, pfx("2001:db8::100/120"), pfx("2001:db8::200/120"), pfx("2001:db8::200/126")}
)

// run applies the same calls to a Ledger and a model.
type run struct {
	*testing.T
	draw   func(n int) int // a number below n
	step   int
	ledger *Ledger
	model  *model
	// promised has the last assignment of each UID, until it is observed with other prefixes.
	promised map[string][]netip.Prefix
}

func (r *run) same(what string, want, got any) {
	r.Helper()
	if reflect.DeepEqual(want, got) {
		return // cmp is slow
	}
	if diff := cmp.Diff(want, got, comparePrefixes); diff != "" {
		r.Fatalf("step %d: %s (-model +ledger):\n%s\n%s", r.step, what, diff, r.model)
	}
}

func (r *run) node() Node {
	id := r.draw(14)
	return Node{Name: fmt.Sprint("n", id/4), UID: fmt.Sprint("u", id), ProviderID: []string{"", "hcloud://1", "hcloud://2"}[r.draw(3)]}
}

func (r *run) prefix() netip.Prefix {
	if r.draw(4) == 0 {
		return misfits[r.draw(len(misfits))]
	}
	ranges := slices.DeleteFunc(slices.Clone(r.model.pools), func(c PoolConfig) bool { return c.Own })
	all := r.model.slots(ranges[r.draw(len(ranges))])
	return all[r.draw(len(all))]
}

func (r *run) offer() Offer {
	var o Offer
	if matching := r.draw(24); matching < 8 {
		all := []string{"v4", "v6", "more", "own", "large"}
		o.Pools = func(name string) bool { return slices.Index(all, name)&matching == 0 }
	}
	o.Own = smallOwn[r.draw(len(smallOwn))]
	if o.Own.IsValid() && r.draw(2) == 0 {
		o.Avoid = []netip.Addr{netip.MustParseAddr("2001:db8::111"), netip.MustParseAddr("2001:db8::21f"), netip.MustParseAddr("10.0.0.1")}
	}
	return o
}

// now advances on every third step.
func (r *run) now() time.Time { return time.Unix(int64(r.step/3+1), 0).UTC() }

func (r *run) observe() {
	node := r.node()
	seen := canonicalAll([]netip.Prefix{r.prefix(), r.prefix(), r.prefix()}[:1+r.draw(3)])
	want := r.model.observe(node, seen, r.now())
	r.same(fmt.Sprintf("Observe(%v, %v)", node, seen), want, r.ledger.Observe(node, seen, r.now()))
	delete(r.promised, node.UID)
}

func (r *run) release() {
	node := r.node()
	want := r.model.release(node.UID, r.now())
	got, ok := r.ledger.Release(node.UID, r.now())
	if want != ok || ok && got.Released.IsZero() {
		r.Fatalf("step %d: Release(%v) = %+v, %t, want %t", r.step, node, got, ok, want)
	}
}

func (r *run) free() {
	uid := r.node().UID
	if r.draw(3) == 0 {
		uid += RetiredSuffix
	}
	want := r.model.free(uid)
	r.same("Free "+uid, want, r.ledger.Free(uid))
	delete(r.promised, uid)
}

func (r *run) exclude() {
	exclusions := smallExclusions[r.draw(len(smallExclusions))]
	want := r.model.setExclusions(exclusions)
	r.same("SetExclusions", want, r.ledger.SetExclusions(exclusions))
}

func (r *run) route() {
	var routes []netip.Prefix
	for range r.draw(4) {
		routes = append(routes, r.prefix())
	}
	r.same("SetRoutes", r.model.setRoutes(routes), r.ledger.SetRoutes(routes))
}

func (r *run) assign() {
	node, offer := r.node(), r.offer()
	had, known := r.ledger.Lookup(node.UID)
	others, back := r.model.claimed(), r.model.back(node, offer)
	roomErr := roomFor(r.ledger, offer)
	before := r.ledger.Counts()
	want, room := r.model.assign(node, offer)
	got, err := r.ledger.Assign(node, offer)
	if room != (err == nil) {
		r.Fatalf("step %d: Assign(%v, %+v): %v, but the model has room: %t\n%s", r.step, node, offer, err, room, r.model)
	}
	sentinels := []error{ErrNoRoom, ErrNoPool, ErrNoOwn, ErrSharedOwn}
	if err != nil && !slices.ContainsFunc(sentinels, func(s error) bool { return errors.Is(err, s) }) {
		r.Fatalf("step %d: Assign fails with %v, which is none of the named errors", r.step, err)
	}
	if err != nil && !known {
		r.same("what a failed Assign took", before, r.ledger.Counts())
	}
	if !known && back == nil && node.ProviderID == "" && (roomErr == nil) != (err == nil) {
		r.Fatalf("step %d: roomFor returns %v, Assign %v", r.step, roomErr, err)
	}
	r.same(fmt.Sprintf("Assign(%v, %+v)", node, offer), want, got)
	for _, p := range got {
		if !known && back == nil && (overlapsAny(p, others) || overlapsAny(p, r.model.exclusions)) {
			r.Fatalf("step %d: Assign(%v) handed out %s, which is not free\n%s", r.step, node, p, r.model)
		}
	}
	h, _ := r.ledger.Lookup(node.UID)
	switch {
	case !had.Released.IsZero():
		// The Node was released before: it may have had podCIDRs, so the assignment is no promise.
		delete(r.promised, node.UID)
	case err == nil && !h.Observed:
		r.promised[node.UID] = got
	}
	maps.DeleteFunc(r.promised, func(uid string, _ []netip.Prefix) bool {
		_, has := r.ledger.Lookup(uid)
		return !has
	})
}

// restart stores everything as text and loads it into a Ledger with other pools.
func (r *run) restart() {
	pools := smallPools[r.draw(len(smallPools))]
	after, err := NewLedger(pools, nil)
	if err != nil {
		r.Fatal(err)
	}
	after.SetExclusions(r.model.exclusions)
	stored := map[string]string{}
	for _, h := range r.ledger.Holdings() {
		stored[h.Node.Name] = recordsOf(r.ledger, h.Node.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(stored)) {
		holdings, err := ParseRecords(name, stored[name])
		if err != nil {
			r.Fatalf("step %d: %v", r.step, err)
		}
		for _, h := range holdings {
			after.Restore(h)
		}
	}
	before := r.ledger.Holdings()
	r.ledger, r.model = after, r.model.restart(pools)
	for name, text := range stored {
		if got := recordsOf(after, name); withoutPools(got) != withoutPools(text) {
			r.Fatalf("step %d: after a restart the records of %s are\n%s\nwant\n%s", r.step, name, got, text)
		}
	}
	r.check()
	// Observations are not stored, so they are repeated.
	for _, h := range before {
		if h.Observed && h.Released.IsZero() {
			r.same("Observe after a restart", r.model.observe(h.Node, h.Prefixes, r.now()), r.ledger.Observe(h.Node, h.Prefixes, r.now()))
		}
	}
}

// withoutPools removes the names of pools from records: a pool of another name may have the same
// node prefixes.
func withoutPools(records string) string {
	fields := strings.FieldsFunc(records, func(c rune) bool { return strings.ContainsRune(" ,\n", c) })
	for i, f := range fields {
		fields[i], _, _ = strings.Cut(f, "@")
	}
	return strings.Join(fields, " ")
}

// check compares all observable state.
func (r *run) check() {
	r.same("Counts", r.model.counts(), r.ledger.Counts())
	r.same("Room", r.model.room(), min(r.ledger.Room(), 1<<30))
	for _, p := range r.ledger.pools {
		if p.Own {
			continue
		}
		r.same("circle of "+p.Name, r.model.next[p.Name], p.grid.at(p.next))
	}
	var want, got []string
	for _, n := range r.model.nodes {
		want = append(want, fmt.Sprint(n.node, n.current, n.abandoned, n.observed, n.released))
	}
	for _, h := range r.ledger.Holdings() {
		got = append(got, fmt.Sprint(h.Node, h.Prefixes, h.Abandoned, h.Observed, h.Released))
	}
	slices.Sort(want)
	slices.Sort(got)
	r.same("Holdings", want, got)
	for uid, mine := range r.promised {
		for other, theirs := range r.promised {
			if uid < other &&
				slices.ContainsFunc(mine, func(p netip.Prefix) bool { return overlapsAny(p, theirs) }) {
				r.Fatalf("step %d: %s was promised %v and %s %v\n%s", r.step, uid, mine, other, theirs, r.model)
			}
		}
	}
}

// drive applies the same random calls to a Ledger and to the model.
func drive(t *testing.T, steps int, draw func(n int) int) {
	t.Helper()
	r := &run{T: t, draw: draw, promised: map[string][]netip.Prefix{}}
	pools, exclusions := smallPools[draw(2)], smallExclusions[draw(2)]
	var err error
	if r.ledger, err = NewLedger(pools, exclusions); err != nil {
		t.Fatal(err)
	}
	r.model = newModel(pools, exclusions)
	for r.step = range steps {
		switch r.draw(20) {
		case 0, 1, 2:
			r.observe()
		case 3, 4, 5:
			r.release()
		case 6, 7, 8:
			r.free()
		case 9:
			r.exclude()
		case 10:
			r.restart()
		case 11:
			r.route()
		default:
			r.assign()
		}
		r.check()
	}
}

func TestLedgerAgreesWithModel(t *testing.T) {
	for seed := range uint64(200 / slowdown) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			drive(t, 120, rand.New(rand.NewPCG(seed, 1)).IntN)
		})
	}
}

func FuzzLedger(f *testing.F) {
	f.Add([]byte("0123456789abcdefghijklmnopqrstuvwxyz"))
	f.Add([]byte{1, 7, 2, 7, 3, 7, 4, 7, 5, 7, 6, 7, 7, 7, 8, 7, 9, 7, 1, 2, 1, 7})
	f.Fuzz(func(t *testing.T, data []byte) {
		at := 0
		drive(t, min(len(data)/2, 200), func(n int) int {
			if at >= len(data) {
				return 0
			}
			at++
			return int(data[at-1]) % n
		})
	})
}
