package ipam

import (
	"errors"
	"testing"
)

// A machine returns and reserves its old prefix, which is still routed. Before its Node is written,
// pools with one more family replace the reservation, and the Node is observed with the new one.
func TestAReservationFromAReturnGoesIntoQuarantineWhenTheNodeHasAnother(t *testing.T) {
	one := mustLedger(t, []PoolConfig{{Name: "v4", Prefix: pfx("10.0.0.0/23"), NodeMask: 24}})
	assign(t, one, machine("a", "old", "1"), "10.0.0.0/24")
	release(t, one, "old", noon)
	again := machine("a", "new", "1")
	assign(t, one, again, "10.0.0.0/24")
	reserved, _ := one.Lookup("new")

	l := mustLedger(t, []PoolConfig{
		{Name: "v4", Prefix: pfx("10.0.0.0/23"), NodeMask: 24}, {Name: "v6", Prefix: pfx("fd00::/62"), NodeMask: 64},
	})
	l.Restore(reserved)
	assign(t, l, again, "10.0.1.0/24", "fd00::/64")
	observe(t, l, again, prefixes("10.0.1.0/24", "fd00::/64"))
	if _, err := l.Assign(b, Offer{}); !errors.Is(err, ErrNoRoom) {
		t.Fatalf("Assign: %v, want ErrNoRoom: 10.0.0.0/24 may still be routed to the machine", err)
	}
	want := "uid=new id=hcloud://1 10.0.1.0/24@v4 fd00::/64@v6\n" +
		"uid=new/retired id=hcloud://1 10.0.0.0/24@v4 released=2026-11-20T12:00:00Z"
	text := recordsOf(l, "a")
	if text != want {
		t.Errorf("the records are\n%s\nwant\n%s", text, want)
	}
	if left := l.Quarantined(); len(left) != 1 || left[0].Node.ProviderID != again.ProviderID {
		t.Errorf("Quarantined() = %+v, want what was retired, with its machine", left)
	}

	// It is stored and ended as any other quarantine.
	after := mustLedger(t, []PoolConfig{{Name: "v4", Prefix: pfx("10.0.0.0/23"), NodeMask: 24}})
	stored, err := ParseRecords("a", text)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range stored {
		after.Restore(h)
	}
	if _, err := after.Assign(b, Offer{}); !errors.Is(err, ErrNoRoom) {
		t.Errorf("Assign after a restart: %v, want ErrNoRoom", err)
	}
	after.Free("new" + RetiredSuffix)
	assign(t, after, b, "10.0.0.0/24")
}
