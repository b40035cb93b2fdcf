package agent

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

// applied returns the kernel's table after a plan. An Add to an occupied place fails the test, like
// a Replace of a foreign route.
func applied(t *testing.T, have []Entry, p Plan) []Entry {
	t.Helper()
	table := slices.Clone(have)
	for _, wanted := range p.Add {
		for _, e := range table {
			if e.Place() == wanted.Place() {
				t.Errorf("add %s where %+v stands", wanted.Entry, e)
			}
		}
		table = append(table, wanted.Entry)
	}
	for _, c := range p.Replace {
		at := slices.Index(table, c.With)
		if at < 0 || !c.With.Ours() || c.With.Place() != c.Place() {
			t.Errorf("replace %+v by %+v in %+v", c.With, c.WantedEntry, table)
			continue
		}
		table[at] = c.Entry
	}
	for _, e := range p.Delete {
		at := slices.Index(table, e)
		if at < 0 || !e.Ours() {
			t.Errorf("delete %+v from %+v", e, table)
			continue
		}
		table = slices.Delete(table, at, at+1)
	}
	return table
}

// empty reports whether the plan has no writes.
func empty(p Plan) bool { return len(p.Add)+len(p.Replace)+len(p.Delete) == 0 }

// TestPlansConverge requires that a plan for any table leaves no further changes, keeps the routes
// of other programs, and adds each wanted route or refuses it.
func TestPlansConverge(t *testing.T) {
	for seed := range uint64(5000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		want, have := randomClaims(rng), randomTable(rng)
		plan := Diff(want, have, nil)
		table := applied(t, have, plan)
		if again := Diff(want, table, nil); !empty(again) {
			t.Fatalf("seed %d: still to do: %+v\nwant %+v\nhave %+v", seed, again, want, have)
		}
		foreigners := func(table []Entry) []Entry {
			return slices.SortedFunc(slices.Values(slices.DeleteFunc(slices.Clone(table), Entry.Ours)),
				compareEntries)
		}
		if !slices.Equal(foreigners(have), foreigners(table)) {
			t.Fatalf("seed %d: somebody else's routes changed: %+v to %+v", seed, have, table)
		}
		for _, wanted := range want {
			stands := slices.ContainsFunc(table, func(e Entry) bool {
				return e.Dst == wanted.Dst && e.Via == wanted.Via && e.Kind == wanted.Kind &&
					e.Link == wanted.Link
			})
			refused := slices.ContainsFunc(plan.Refused, func(r Conflict) bool {
				return r.WantedEntry == wanted
			})
			if !stands && !refused {
				t.Fatalf("seed %d: %+v neither stands nor is refused in %+v", seed, wanted, table)
			}
		}
		for _, e := range table {
			if e.Ours() && !slices.ContainsFunc(want, func(c WantedEntry) bool { return c.Entry == e }) {
				t.Fatalf("seed %d: %+v is ours and nobody wants it", seed, e)
			}
		}
		shuffled := slices.Clone(have)
		rng.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if a, b := fmt.Sprint(plan.Delete, plan.Add), fmt.Sprint(Diff(want, shuffled, nil).Delete,
			Diff(want, shuffled, nil).Add); a != b {
			t.Fatalf("seed %d: the order of the table matters: %s and %s", seed, a, b)
		}
	}
}

func randomClaims(rng *rand.Rand) []WantedEntry {
	var entries []WantedEntry
	for i := range 4 {
		dst := fmt.Sprintf("10.244.%d.0/24", i)
		switch rng.IntN(4) {
		case 0:
			entries = append(entries, WantedEntry{refusing(prefix(dst)), "", ""})
		case 1, 2:
			entries = append(entries, WantedEntry{ours(dst, fmt.Sprintf("10.0.0.%d", rng.IntN(3)), 2), "n", ""})
		}
	}
	return entries
}

func randomTable(rng *rand.Rand) []Entry {
	var table []Entry
	for range rng.IntN(8) {
		e := ours(fmt.Sprintf("10.244.%d.0/24", rng.IntN(5)), fmt.Sprintf("10.0.0.%d", rng.IntN(3)), 2+rng.IntN(2))
		switch rng.IntN(5) {
		case 0:
			e = refusing(e.Dst)
		case 1:
			e.Protocol = 4
		case 2:
			e.Protocol, e.Metric = 4, []uint32{
				0, MetricPeer, PeerMetric(e.Dst), 500, MetricWorst,
			}[rng.IntN(5)]
		case 3:
			e.Kind, e.Via = OtherKind, netip.Addr{}
		}
		if !slices.ContainsFunc(table, func(o Entry) bool { return o.Place() == e.Place() }) {
			table = append(table, e)
		}
	}
	return table
}

// TestLookupAgainstAWalk compares the lookup with a walk over all routes.
func TestLookupAgainstAWalk(t *testing.T) {
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 2))
		var table []Entry
		for range rng.IntN(12) {
			p := netip.PrefixFrom(netip.AddrFrom4([4]byte{
				10, byte(rng.IntN(2)), byte(rng.IntN(3)), byte(rng.IntN(4)),
			}), rng.IntN(33)).Masked()
			table = append(table, Entry{Dst: prefix("10.0.0.0/8"), Via: addr("10.0.0.1"), Kind: Unicast, Metric: uint32(rng.IntN(3)), Protocol: 4})
			table[len(table)-1].Dst = p
		}
		target, atMost := netip.AddrFrom4([4]byte{
			10, byte(rng.IntN(2)), byte(rng.IntN(3)), byte(rng.IntN(4)),
		}), rng.IntN(33)
		var best []Entry
		for _, e := range table {
			if e.Dst.Contains(target) && e.Dst.Bits() <= atMost {
				best = append(best, e)
			}
		}
		slices.SortFunc(best, func(a, b Entry) int {
			return cmp.Or(cmp.Compare(b.Dst.Bits(), a.Dst.Bits()), cmp.Compare(a.Metric, b.Metric))
		})
		got, ok := newLookup(table).route(target, atMost)
		if ok != (len(best) > 0) || ok && (got.Dst != best[0].Dst || got.Metric != best[0].Metric) {
			t.Fatalf("seed %d: %s within /%d: got %+v, %t, want %+v of %+v", seed, target, atMost, got, ok, best, table)
		}
	}
}
