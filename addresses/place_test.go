package addresses_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/underlay-ccm/underlay/addresses"
)

// used returns a ledger in which n addresses have a Service each.
func used(n int) addresses.Ledger {
	var claims []addresses.Claim
	for i := range n {
		claims = append(claims, claim(fmt.Sprint("s", i), i, addresses.IPv4))
	}
	l, _ := addresses.Ledger{}.Assign([]addresses.Pool{pool("a", "192.0.2.0/24")}, claims)
	return l
}

// everywhere makes these nodes eligible for all addresses.
func everywhere(
	l addresses.Ledger, nodes []string, leaving ...string,
) map[netip.Addr]addresses.Eligible {
	out := make(map[netip.Addr]addresses.Eligible)
	for _, e := range l.Entries() {
		out[e.Address] = addresses.Eligible{Nodes: nodes, Leaving: leaving}
	}
	return out
}

func counts(l addresses.Ledger) map[string]int {
	held := make(map[string]int)
	for _, e := range l.Entries() {
		held[e.Holder]++
	}
	return held
}

// The addresses of a deleted node move, evenly to all others; a new node causes no moves at once,
// and gets its share one by one by balancing.
func TestAsFewMovesAsPossible(t *testing.T) {
	l, moves := used(12).Place(everywhere(used(12), []string{"n1", "n2", "n3"}))
	if got := counts(l); len(moves) != 12 || got["n1"] != 4 || got["n2"] != 4 || got["n3"] != 4 {
		t.Fatalf("at first: %v, %d moves", got, len(moves))
	}
	l, moves = l.Place(everywhere(l, []string{"n1", "n3"}))
	if got := counts(l); len(moves) != 4 || got["n1"] != 6 || got["n3"] != 6 {
		t.Errorf("without n2: %v, %d moves", got, len(moves))
	}
	all := everywhere(l, []string{"n1", "n2", "n3"})
	if _, moves := l.Place(all); len(moves) != 0 {
		t.Errorf("n2 is back: moves %v", moves)
	}
	for n := 0; ; n++ {
		next, move, ok := l.Balance(all)
		if !ok {
			if got := counts(l); n != 4 || got["n1"] != 4 || got["n2"] != 4 || got["n3"] != 4 {
				t.Errorf("balanced by %d moves: %v", n, got)
			}
			return
		}
		if move.To != "n2" {
			t.Errorf("balancing makes %+v", move)
		}
		l = next
	}
}

// A draining node releases its addresses first, and keeps them while there is no other node.
func TestLeavingNodes(t *testing.T) {
	l, _ := used(3).Place(everywhere(used(3), []string{"n1"}))
	if _, moves := l.Place(everywhere(l, nil, "n1")); len(moves) != 0 {
		t.Errorf("nobody else is there: moves %v", moves)
	}
	if _, moves := l.Place(everywhere(l, []string{"n2"}, "n1")); len(moves) != 3 {
		t.Errorf("n2 may hold them: moves %v", moves)
	}
	if _, moves := l.Place(everywhere(l, nil, "n3")); len(moves) != 3 {
		t.Errorf("n1 is gone, n3 drains: moves %v", moves)
	}
	if _, moves := l.Place(everywhere(l, nil)); len(moves) != 0 {
		t.Errorf("no node is known to be eligible: moves %v", moves)
	}
}

// With any changes of nodes and Services, an address has an eligible holder if there is an eligible
// node, and an epoch of an address never has two holders.
func TestEpochs(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		var l addresses.Ledger
		holders := make(map[string]string) // by address and epoch
		for range 60 {
			var claims []addresses.Claim
			for i := range 6 {
				if r.IntN(4) > 0 {
					claims = append(claims, claim(fmt.Sprint("s", i), i, addresses.IPv4))
				}
			}
			l, _ = l.Assign([]addresses.Pool{pool("a", "192.0.2.0/29")}, claims)
			eligible := make(map[netip.Addr]addresses.Eligible)
			for _, e := range l.Entries() {
				var may addresses.Eligible
				for _, n := range []string{"n1", "n2", "n3"} {
					switch r.IntN(3) {
					case 0:
						may.Nodes = append(may.Nodes, n)
					case 1:
						may.Leaving = append(may.Leaving, n)
					}
				}
				eligible[e.Address] = may
			}
			before := l
			l, _ = l.Place(eligible)
			if next, _, ok := l.Balance(eligible); ok {
				l = next
			}
			for i, e := range l.Entries() {
				may, was := eligible[e.Address], before.Entries()[i]
				switch {
				case len(e.Shares) == 0 && e.Holder != "":
					t.Fatalf("seed %d: %s is held by %s for nobody", seed, e.Address, e.Holder)
				case len(e.Shares) > 0 && len(may.Nodes) > 0 && !slices.Contains(may.Nodes, e.Holder):
					t.Fatalf("seed %d: %s is held by %q, not by one of %v", seed, e.Address, e.Holder, may.Nodes)
				case len(e.Shares) > 0 && e.Holder == "" && (was.Holder != "" || len(may.Leaving) > 0):
					t.Fatalf("seed %d: %s has lost its holder %s", seed, e.Address, was.Holder)
				}
				key := fmt.Sprint(e.Address, " ", e.Epoch)
				if other, known := holders[key]; known && other != e.Holder {
					t.Fatalf("seed %d: epoch %d of %s is %q's and %q's", seed, e.Epoch, e.Address, other, e.Holder)
				}
				holders[key] = e.Holder
			}
		}
	}
}

// A node that may be wrongly reported as failed keeps its addresses, and gets no others.
func TestKeepingNodes(t *testing.T) {
	keeping := func(
		l addresses.Ledger, nodes []string, keep ...string,
	) map[netip.Addr]addresses.Eligible {
		out := everywhere(l, nodes)
		for a, e := range out {
			e.Keeping = keep
			out[a] = e
		}
		return out
	}
	l, _ := used(4).Place(everywhere(used(4), []string{"n1", "n2"}))
	if _, moves := l.Place(keeping(l, []string{"n2"}, "n1")); len(moves) > 0 {
		t.Errorf("n1 keeps what it holds: moves %v", moves)
	}
	more := used(8)
	if next, moves := more.Place(keeping(more, []string{"n2"}, "n1")); len(moves) != 8 || counts(next)["n1"] > 0 {
		t.Errorf("n1 gets nothing: %v", moves)
	}
	both, _ := l.Place(together(l, []string{"n1", "n2", "n3"}))
	may := keeping(both, []string{"n2"}, "n1", "n4")
	for a, e := range may {
		e.Together = true
		may[a] = e
	}
	both, _ = both.Place(may)
	if got := both.Entries()[0].Nodes; !slices.Equal(got, []string{"n1", "n2"}) {
		t.Errorf("together: %v", got)
	}
}
