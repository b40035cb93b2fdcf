package addresses_test

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/addresses"
)

func TestReports(t *testing.T) {
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	full := addresses.Report{
		Unfit:   "kube-proxy does not answer",
		Held:    []addresses.Hold{{Address: a, Epoch: 3}, {Address: b, Epoch: 1}},
		Refused: []addresses.Problem{{Address: a, Reason: addresses.InUse, By: "02:00:00:00:00:07", Text: "x"}, {Address: b, Reason: addresses.OffSegment}},
		Silent:  []addresses.Endpoint{{Node: "n1", Port: 10256}, {Node: "n1", Port: 30999}, {Node: "n2", Port: 10256}},
		Routers: []addresses.Router{{Name: "r1", Established: true, Announced: 2}, {Name: "r2", State: "Active"}},
	}
	text, err := full.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	if read, err := addresses.ParseReport(string(text)); err != nil || !reflect.DeepEqual(read, full) {
		t.Errorf("read %+v, %v", read, err)
	}
	mixed := full
	mixed.Held, mixed.Refused = reversed(full.Held), reversed(full.Refused)
	mixed.Silent, mixed.Routers = reversed(full.Silent), reversed(full.Routers)
	if again, err := mixed.MarshalText(); err != nil || string(again) != string(text) {
		t.Errorf("the same state has two texts:\n%s\n%s", text, again)
	}
	if mixed.Held[0].Address != b {
		t.Error("marshalling sorts what it was given")
	}
	if text, err := (addresses.Report{}).MarshalText(); err != nil || string(text) != "{}" {
		t.Errorf("nothing is %s, %v", text, err)
	}
	for _, text := range []string{"", "{}"} {
		if r, err := addresses.ParseReport(text); err != nil ||
			!reflect.DeepEqual(r, addresses.Report{}) {
			t.Errorf("%q is %+v, %v", text, r, err)
		}
	}
	for _, text := range []string{"{", `{"held":[{"address":"web"}]}`, `[]`} {
		if r, err := addresses.ParseReport(text); err == nil || !strings.Contains(err.Error(), "a node's report") || !reflect.DeepEqual(r, addresses.Report{}) {
			t.Errorf("%q is %+v, %v", text, r, err)
		}
	}
}

func reversed[T any](all []T) []T {
	all = slices.Clone(all)
	slices.Reverse(all)
	return all
}

// A rebuilt ledger resumes from the nodes' reports: the holder with the highest epoch keeps an
// address, and no node gets an epoch that was reported.
func TestResume(t *testing.T) {
	l := used(4)
	held := func(epochs ...uint64) (r addresses.Report) {
		for i, epoch := range epochs {
			if epoch > 0 {
				r.Held = append(r.Held, addresses.Hold{Address: l.Entries()[i].Address, Epoch: epoch})
			}
		}
		return r
	}
	reports := map[string]addresses.Report{
		"n1": held(7, 3, 0), "n2": held(5, 4, 0), "n3": held(0, 4, 0),
		"n4": {Held: []addresses.Hold{{Address: netip.MustParseAddr("203.0.113.7"), Epoch: 99}}},
		"n5": held(1<<64 - 1),
	}
	var got []string
	resumed := l.Resume(reports)
	for _, e := range resumed.Entries() {
		got = append(got, fmt.Sprint(e.Holder, e.Epoch))
	}
	if want := []string{"n1100", "n2100", "0", "0"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for _, e := range l.Entries() {
		if e.Holder != "" {
			t.Error("the ledger that was given is another one afterwards")
		}
	}
	placed, moves := resumed.Place(everywhere(resumed, []string{"n1", "n2", "n3"}))
	if len(moves) != 2 || moves[0].Epoch != 100 || moves[0].To != "n3" {
		t.Errorf("moves %v", moves)
	}
	if again := placed.Resume(nil); !reflect.DeepEqual(again.Entries(), placed.Entries()) {
		t.Error("nobody says anything, and something changed")
	}
}

// All annotations of a Node are limited to 256 KiB together.
func TestReportsAreBounded(t *testing.T) {
	var r addresses.Report
	at := netip.MustParseAddr("2001:db8:ffff:ffff:ffff:ffff:ffff:0")
	for range 5000 {
		at = at.Next()
		r.Held = append(r.Held, addresses.Hold{Address: at, Epoch: 12345})
		r.Refused = append(r.Refused, addresses.Problem{Address: at, Reason: addresses.NoRouter, Text: strings.Repeat("why not ", 50)})
	}
	text, err := r.MarshalText()
	if err != nil || len(text) > 192<<10 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	read, err := addresses.ParseReport(string(text))
	if err != nil || len(read.Refused) < 1000 || read.Refused[0].Text == "" {
		t.Errorf("%d refused, %v", len(read.Refused), err)
	}
	r.Refused = nil
	if text, err := r.MarshalText(); err != nil || len(text) > 192<<10 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

func TestOnSegment(t *testing.T) {
	a := netip.MustParseAddr("192.0.2.7")
	for text, want := range map[string]bool{
		"{}": true, `{"segments":[]}`: false, `{"segments":["192.0.2.0/24","2001:db8::/64"]}`: true, `{"segments":["192.0.3.0/24"]}`: false,
	} {
		r, err := addresses.ParseReport(text)
		again, _ := r.MarshalText()
		if err != nil || r.OnSegment(a) != want || string(again) != text {
			t.Errorf("%s: %t, %v; written %s", text, r.OnSegment(a), err, again)
		}
	}
}
