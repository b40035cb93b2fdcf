package addresses

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// TestALargePoolDoesNotFillTheLedger assigns addresses to one Service after another, from a pool
// with far more addresses than the ledger can keep.
func TestALargePoolDoesNotFillTheLedger(t *testing.T) {
	whole, err := ParseRange("2001:db8::/64")
	if err != nil {
		t.Fatal(err)
	}
	pools := []Pool{{Name: "six", Ranges: []Range{whole}}}
	var ledger Ledger
	highest := make(map[netip.Addr]uint64)
	for i := range 2000 {
		uid := fmt.Sprintf("service-%d", i)
		claim := Claim{UID: uid, Families: []Family{IPv6}, Admitted: []string{"six"}, Created: time.Unix(int64(i), 0)}
		ledger, _ = ledger.Assign(pools, []Claim{claim})
		got := ledger.Of(uid)
		if len(got) != 1 {
			t.Fatalf("Service %d has %v", i, got)
		}
		var moves []Move
		ledger, moves = ledger.Place(map[netip.Addr]Eligible{got[0]: {Nodes: []string{"a", "b"}}})
		for _, m := range moves {
			if m.Epoch <= highest[m.Address] {
				t.Fatalf("%s has the epoch %d a second time", m.Address, m.Epoch)
			}
			highest[m.Address] = m.Epoch
		}
	}
	if n := len(ledger.Entries()); n > returned+2 {
		t.Errorf("the ledger has %d entries for one Service", n)
	}
	text, err := ledger.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	read, err := ParseLedger(text)
	if err != nil || read.floor != ledger.floor {
		t.Errorf("read the floor %d, %v, want %d", read.floor, err, ledger.floor)
	}
}

// TestADroppedAddressComesBackWithAHigherEpoch requests an address again after the ledger dropped
// its entry.
func TestADroppedAddressComesBackWithAHigherEpoch(t *testing.T) {
	requested := netip.MustParseAddr("2001:db8::1")
	ledger := newLedger()
	ledger.put(Entry{Address: requested, Epoch: 7})
	for i := range returned {
		other := netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 1, 15: byte(i)})
		ledger.put(Entry{Address: other, Epoch: 8})
	}
	whole := Range{requested, netip.MustParseAddr("2001:db8::2")}
	pools := []Pool{{Name: "six", Ranges: []Range{whole}}}
	ledger, _ = ledger.Assign(pools, nil)
	if _, kept := ledger.entries[requested]; kept {
		t.Fatal("the oldest entry is still there")
	}
	ledger, _ = ledger.Assign(pools, []Claim{{UID: "u", Families: []Family{IPv6}, Admitted: []string{"six"}, Addresses: []netip.Addr{requested}}})
	_, moves := ledger.Place(map[netip.Addr]Eligible{requested: {Nodes: []string{"a"}}})
	if len(moves) != 1 || moves[0].Epoch <= 7 {
		t.Errorf("moves %v, want one with an epoch above 7", moves)
	}
}
