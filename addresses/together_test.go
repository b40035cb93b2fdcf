package addresses_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/underlay-ccm/underlay/addresses"
)

// together makes these nodes hold all addresses together.
func together(
	l addresses.Ledger, nodes []string, leaving ...string,
) map[netip.Addr]addresses.Eligible {
	out := everywhere(l, nodes, leaving...)
	for a, e := range out {
		e.Together = true
		out[a] = e
	}
	return out
}

func TestNodesHoldAnAddressTogether(t *testing.T) {
	l, moves := used(2).Place(together(used(2), []string{"n2", "n1", "n2"}))
	for _, e := range l.Entries() {
		if !slices.Equal(e.Nodes, []string{"n1", "n2"}) || e.Holder != "" || !e.HeldBy("n2") || e.HeldBy("n3") || e.HeldBy("") {
			t.Errorf("entry %+v", e)
		}
	}
	if len(moves) > 0 {
		t.Errorf("moves %v, and nobody held it alone", moves)
	}
	text, err := l.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	read, err := addresses.ParseLedger(text)
	if err != nil || !reflect.DeepEqual(read.Entries(), l.Entries()) {
		t.Errorf("read again: %v, %v, want %v", read.Entries(), err, l.Entries())
	}
	for name, c := range map[string]struct {
		may  map[netip.Addr]addresses.Eligible
		want []string
	}{
		"one leaves, others stay":  {together(l, []string{"n1"}, "n2"), []string{"n1"}},
		"all leave":                {together(l, nil, "n1", "n2"), []string{"n1", "n2"}},
		"nobody is known to be up": {together(l, nil), []string{"n1", "n2"}},
	} {
		next, _ := l.Place(c.may)
		if got := next.Entries()[0].Nodes; !slices.Equal(got, c.want) {
			t.Errorf("%s: held by %v, want %v", name, got, c.want)
		}
	}
	// The pool's mover changes, and changes back.
	alone, moves := l.Place(everywhere(l, []string{"n1", "n2"}))
	if e := alone.Entries()[0]; e.Holder == "" || len(e.Nodes) > 0 || e.Epoch != 1 || len(moves) != 2 {
		t.Errorf("alone: %+v, moves %v", e, moves)
	}
	again, moves := alone.Place(together(alone, []string{"n1", "n2"}))
	if e := again.Entries()[0]; e.Holder != "" || len(e.Nodes) != 2 || e.Epoch != 2 || len(moves) != 2 {
		t.Errorf("together again: %+v, moves %v", e, moves)
	}
	free, _ := again.Assign([]addresses.Pool{pool("a", "192.0.2.0/24")}, nil)
	free, _ = free.Place(nil)
	for _, e := range free.Entries() {
		if len(e.Nodes) > 0 || e.HeldBy("n1") {
			t.Errorf("held for nobody: %+v", e)
		}
	}
}

// Most addresses are held by the same nodes: each such group is stored once.
func TestGroupsAreStoredOnce(t *testing.T) {
	var nodes []string
	for i := range 50 {
		nodes = append(nodes, fmt.Sprintf("node-with-a-long-name-%d.example.com", i))
	}
	l, _ := used(100).Place(together(used(100), nodes))
	text, err := l.MarshalText()
	if err != nil || len(text) > 20_000 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	for _, wrong := range []string{
		`{"version":1,"addresses":[{"address":"192.0.2.1","group":0}]}`,
		`{"version":1,"groups":[["a"]],"addresses":[{"address":"192.0.2.1","group":-1}]}`,
		`{"version":1,"groups":[["a"]],"addresses":[{"address":"192.0.2.1","group":0,"node":"a","epoch":1}]}`,
	} {
		if _, err := addresses.ParseLedger([]byte(wrong)); err == nil {
			t.Errorf("%s is read", wrong)
		}
	}
}

// With any changes of nodes, a stored and parsed ledger is the same, and no address is held alone
// and together.
func TestTogetherComeAndGo(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 3))
		l := used(5)
		for range 30 {
			may := make(map[netip.Addr]addresses.Eligible)
			for _, e := range l.Entries() {
				one := addresses.Eligible{Together: r.IntN(3) > 0}
				for _, n := range []string{"n1", "n2", "n3"} {
					if r.IntN(2) == 0 {
						one.Nodes = append(one.Nodes, n)
					}
				}
				may[e.Address] = one
			}
			l, _ = l.Place(may)
			for _, e := range l.Entries() {
				one := may[e.Address]
				switch {
				case e.Holder != "" && len(e.Nodes) > 0:
					t.Fatalf("seed %d: %+v", seed, e)
				case one.Together && len(one.Nodes) > 0 && !slices.Equal(e.Nodes, one.Nodes):
					t.Fatalf("seed %d: held by %v, want %v", seed, e.Nodes, one.Nodes)
				}
			}
			text, err := l.MarshalText()
			if err != nil {
				t.Fatal(err)
			}
			if read, err := addresses.ParseLedger(text); err != nil ||
				!reflect.DeepEqual(read.Entries(), l.Entries()) {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
	}
}
