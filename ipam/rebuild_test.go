package ipam

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func entries() map[string]string {
	return map[string]string{
		"a":      "uid=uid-a 10.0.0.0/24@v4 fd00::/64@v6",
		"b":      "uid=uid-b 10.0.0.0/24@v4 fd00:0:0:1::/64@v6",
		"gone":   "uid=uid-gone 10.0.2.0/24@v4 fd00:0:0:2::/64@v6 released=2026-11-20T12:00:00Z",
		"future": "uid=uid-future 10.0.3.0/24@v4 fd00:0:0:3::/64@v6 released=2066-11-20T12:00:00Z",
		MarkKey:  Mark(0),
	}
}

func TestRebuild(t *testing.T) {
	stored, damaged := ParseStored(Objects{entries()})
	if len(damaged) > 0 {
		t.Fatalf("damaged: %v", damaged)
	}
	now := noon.Add(time.Minute)
	pools := dualStackPools()
	pools[1].Prefix = pfx("fd00::/61")
	gone := Node{Name: "gone", UID: "uid-gone"}
	young := LiveNode{Node: a, PodCIDRs: prefixes("10.0.0.0/24", "fd00::/64"), Created: noon}
	old := LiveNode{Node: b, PodCIDRs: prefixes("10.0.0.0/24", "fd00:0:0:1::/64"), Created: noon.Add(-time.Hour)}
	back := LiveNode{Node: gone, PodCIDRs: prefixes("10.0.2.0/24", "fd00:0:0:2::/64"), Created: noon}
	waits := LiveNode{Node: c, Created: noon.Add(time.Second)}
	for _, nodes := range [][]LiveNode{{young, old, back, waits}, {waits, back, old, young}} {
		r, err := Rebuild(Facts{
			Pools: pools, Occupied: prefixes("10.0.5.0/24"), Stored: stored, Nodes: nodes, Now: now,
			Unstored: []Holding{{Node: c, Prefixes: prefixes("10.0.6.0/24", "fd00:0:0:6::/64")}},
		})
		if err != nil {
			t.Fatal(err)
		}
		var order []string
		for _, o := range r.Observed {
			order = append(order, o.Node.Name)
		}
		if want := []string{"b", "a", "gone", "c"}; !slices.Equal(order, want) {
			t.Errorf("observed %v, want %v", order, want)
		}
		// The older Node keeps a prefix that both have, though its name sorts later.
		want := []Warning{{Kind: Duplicate, Node: a, Prefix: pfx("10.0.0.0/24"), Against: pfx("10.0.0.0/24"), Holder: b}}
		if diff := cmp.Diff(want, r.Observed[1].Warnings, comparePrefixes); diff != "" {
			t.Errorf("warnings about a (-want +got):\n%s", diff)
		}
		want[0].Kind = DuplicateRecord
		if diff := cmp.Diff(want, r.Restored, comparePrefixes); diff != "" {
			t.Errorf("warnings about what is stored (-want +got):\n%s", diff)
		}
		// A Node that was recorded as released stays so until a live read shows it.
		if h, _ := r.Lookup("uid-gone"); !h.Released.Equal(noon) || h.Observed {
			t.Errorf("Lookup(gone) = %+v, want it in quarantine", h)
		}
		if h, _ := r.Lookup("uid-future"); !h.Released.Equal(now) {
			t.Errorf("the quarantine began at %s, want now, %s", h.Released, now)
		}
		if h, _ := r.Lookup(c.UID); h.Observed || len(h.Prefixes) != 2 {
			t.Errorf("Lookup(c) = %+v, want what was not stored", h)
		}
		assign(t, r.Ledger, Node{Name: "d", UID: "uid-d"}, "10.0.4.0/24", "fd00:0:0:4::/64")
	}
}

func TestRebuildNamesPoolsThatWereRemoved(t *testing.T) {
	stored, _ := ParseStored(Objects{entries()})
	r, err := Rebuild(Facts{Pools: dualStackPools()[1:], Stored: stored, Now: noon})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Removed(); len(got) != 4 || got[0].Pool != "v4" {
		t.Errorf("Removed() = %+v, want four of v4", got)
	}
	if _, err := Rebuild(Facts{Stored: stored}); err == nil {
		t.Error("Rebuild without pools: no error")
	}
}

func TestDamagedEntriesAreNamed(t *testing.T) {
	text := entries()
	text["a"], text[MarkKey] = "uid=uid-a 10.0.0.1/24", Mark(1)
	stored, damaged := ParseStored(Objects{text})
	if len(damaged) != 2 || damaged[0].Key != MarkKey || damaged[1].Key != "a" || !strings.Contains(damaged[1].Error(), "10.0.0.0/24") {
		t.Errorf("damaged are %v, want the mark and a", damaged)
	}
	if len(stored) != 3 {
		t.Errorf("read %+v, want the rest", stored)
	}
}
