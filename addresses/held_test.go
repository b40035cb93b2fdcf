package addresses_test

import (
	"net/netip"
	"testing"

	"github.com/underlay-ccm/underlay/addresses"
)

// step is a change of a ledger.
type step func(addresses.Ledger) addresses.Ledger

// The holder's reports show whether a node of the cluster has held an address. That ends when the
// address is released, or left to an external host.
func TestWitness(t *testing.T) {
	one := netip.MustParseAddr("192.0.2.1")
	only := []addresses.Pool{pool("a", one.String())}
	holds := func(epoch uint64) addresses.Report {
		return addresses.Report{Held: []addresses.Hold{{Address: one, Epoch: epoch}}}
	}
	refuses := func(why addresses.ProblemReason) addresses.Report {
		return addresses.Report{Refused: []addresses.Problem{{Address: one, Reason: why}}}
	}
	young := holds(1)
	young.Held[0].Young = true
	both := holds(1)
	both.Refused = refuses(addresses.InUse).Refused
	hasReport := func(node string, r addresses.Report) step {
		return func(l addresses.Ledger) addresses.Ledger {
			return l.Witness(map[string]addresses.Report{node: r})
		}
	}
	services := func(uids ...string) step {
		return func(l addresses.Ledger) addresses.Ledger {
			var claims []addresses.Claim
			for _, uid := range uids {
				claims = append(claims, claim(uid, 1, addresses.IPv4))
			}
			l, _ = l.Assign(only, claims)
			return l
		}
	}
	on := func(nodes ...string) step {
		return func(l addresses.Ledger) addresses.Ledger {
			l, _ = l.Place(everywhere(l, nodes))
			return l
		}
	}
	routers := func(l addresses.Ledger) addresses.Ledger {
		l, _ = l.Place(together(l, []string{"a", "b"}))
		return l
	}
	for name, c := range map[string]struct {
		steps []step
		held  bool
	}{
		"nobody has said so":                 {nil, false},
		"its holder says so":                 {[]step{hasReport("a", holds(1))}, true},
		"it may be given back in a moment":   {[]step{hasReport("a", young)}, false},
		"it was held, and is young again":    {[]step{hasReport("a", holds(1)), hasReport("a", young)}, true},
		"another node says so":               {[]step{hasReport("b", holds(1))}, false},
		"its holder says so of another time": {[]step{hasReport("a", holds(7))}, false},
		"it moves":                           {[]step{hasReport("a", holds(1)), on("b")}, true},
		"it moves and is not heard of yet":   {[]step{hasReport("a", holds(1)), on("b"), hasReport("b", addresses.Report{})}, true},
		"nothing is heard of it any more":    {[]step{hasReport("a", holds(1)), hasReport("a", addresses.Report{})}, true},
		"a stranger has it":                  {[]step{hasReport("a", holds(1)), hasReport("a", refuses(addresses.InUse))}, false},
		"the next holder finds a stranger":   {[]step{hasReport("a", holds(1)), on("b"), hasReport("b", refuses(addresses.InUse)), on("c")}, false},
		"a former holder finds a stranger":   {[]step{hasReport("a", holds(1)), on("b"), hasReport("a", refuses(addresses.InUse))}, true},
		"a stranger claims it too":           {[]step{hasReport("a", both)}, true},
		"it is off the holder's segment":     {[]step{hasReport("a", holds(1)), hasReport("a", refuses(addresses.OffSegment))}, true},
		"it is given back, and given again":  {[]step{hasReport("a", holds(1)), services(), on("a"), services("v"), on("a"), hasReport("a", holds(1))}, false},
		"another Service gets it at once":    {[]step{hasReport("a", holds(1)), services("v"), on("a")}, true},
		"routers are told of it, then not":   {[]step{hasReport("a", holds(1)), routers, hasReport("a", holds(2)), on("a")}, false},
	} {
		l := on("a")(services("u")(addresses.Ledger{}))
		for _, step := range c.steps {
			l = step(l)
		}
		text, err := l.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		read, err := addresses.ParseLedger(text)
		if err != nil {
			t.Fatal(err)
		}
		before, _ := l.Entry(one)
		if e, known := read.Entry(one); !known || e.Held != c.held || before.Held != c.held {
			t.Errorf("%s: %+v, and %+v as stored, want held: %t", name, before, e, c.held)
		}
	}
}

// A ledger of an earlier version does not record that addresses were held: they are probed for
// longer until their holders have reported it.
func TestALedgerWithoutEarlierHolders(t *testing.T) {
	l, err := addresses.ParseLedger([]byte(`{"version":1,"addresses":[{"address":"192.0.2.1","services":[{"uid":"u","namespace":"n","name":"s"}],"node":"a","epoch":9}]}`))
	if err != nil {
		t.Fatal(err)
	}
	one := netip.MustParseAddr("192.0.2.1")
	if e, _ := l.Entry(one); e.Held {
		t.Errorf("%+v", e)
	}
	l = l.Witness(map[string]addresses.Report{"a": {Held: []addresses.Hold{{Address: one, Epoch: 9}}}})
	if e, _ := l.Entry(one); !e.Held {
		t.Errorf("%+v", e)
	}
}
