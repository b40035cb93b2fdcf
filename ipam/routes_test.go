package ipam

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRoutesBlockPrefixesWithoutAHolder(t *testing.T) {
	l := mustLedger(t, []PoolConfig{{Name: "v4", Prefix: pfx("10.0.0.0/22"), NodeMask: 24}})
	assign(t, l, a, "10.0.0.0/24")
	routes := prefixes("10.0.2.0/23", "10.0.0.0/24", "10.0.3.128/25", "192.168.0.0/16", "10.0.2.0/23")
	if diff := cmp.Diff(prefixes("10.0.2.0/23", "10.0.3.128/25"), l.SetRoutes(routes), comparePrefixes); diff != "" {
		t.Errorf("SetRoutes (-want +got):\n%s", diff)
	}
	wantCounts(t, l, "v4", Counts{Free: 1, Allocated: 1, Foreign: 2})
	assign(t, l, b, "10.0.1.0/24")
	if _, err := l.Assign(c, Offer{}); !errors.Is(err, ErrNoRoom) {
		t.Errorf("Assign: %v, want ErrNoRoom", err)
	}
	// A Node is observed with a routed prefix, as after the loss of the ledger.
	observe(t, l, c, prefixes("10.0.2.0/24"))
	wantCounts(t, l, "v4", Counts{Allocated: 3, Foreign: 1})
	// A route outlives its Node: the freed prefix is blocked.
	l.Free(a.UID)
	wantCounts(t, l, "v4", Counts{Allocated: 2, Foreign: 2})
	if got := l.SetRoutes(nil); got != nil {
		t.Errorf("SetRoutes(nil) = %v", got)
	}
	wantCounts(t, l, "v4", Counts{Free: 2, Allocated: 2})
	assign(t, l, Node{Name: "d", UID: "uid-d"}, "10.0.3.0/24")
	assign(t, l, Node{Name: "e", UID: "uid-e"}, "10.0.0.0/24")
}
