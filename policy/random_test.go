package policy_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/underlay-ccm/underlay/policy"
	"github.com/underlay-ccm/underlay/test/testenv/policymodel"
)

func allAddresses() []netip.Addr {
	all := policymodel.Outside()
	for n := range policymodel.NodeCount {
		for host := 2; host < 5; host++ {
			all = append(all, policymodel.Address(n, host, 0), policymodel.Address(n, host, 1))
		}
	}
	return all
}

// compare compares the filters of all nodes together with the model, and Explain with both.
func compare(t *testing.T, c policymodel.Chooser, w policymodel.World, all []*policy.Index) {
	t.Helper()
	var rulesets []policy.Ruleset
	for _, x := range all {
		rulesets = append(rulesets, x.Ruleset())
	}
	for _, from := range allAddresses() {
		for _, to := range allAddresses() {
			if from.Is4() != to.Is4() {
				continue
			}
			conn := policy.Connection{
				From: from, To: to,
				Protocol: policymodel.Of(c, policy.TCP, policy.UDP, policy.SCTP, policy.TCP, policy.UDP, 1),
				Port:     policymodel.Of[uint16](c, 79, 80, 81, 82),
			}
			want := w.Allowed(conn)
			got := true
			for _, r := range rulesets {
				got = got && r.Allows(conn)
			}
			if got != want {
				t.Fatalf("%+v is allowed: %t, want %t; explained as %+v", conn, got, want, all[0].Explain(conn))
			}
			if e := all[0].Explain(conn); !w.Closed(from) && !w.Closed(to) && e.Allowed != want {
				t.Fatalf("%+v is explained as allowed: %t, want %t: %+v", conn, e.Allowed, want, e)
			}
		}
	}
}

// TestRulesetsMatchTheAPI also shows that the way to a state does not matter.
func TestRulesetsMatchTheAPI(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			c := policymodel.Chooser{Rand: rand.New(rand.NewPCG(seed, 1))}
			w := policymodel.New()
			var indexes []*policy.Index
			for i := range policymodel.NodeCount {
				indexes = append(indexes, policy.NewIndex(fmt.Sprint("n", i)))
			}
			for range 40 {
				for range 1 + c.IntN(6) {
					draw := c.Change
					if c.Some(12) {
						draw = c.ChangeNode
					}
					change := draw(w)
					for _, x := range indexes {
						change(x)
					}
				}
				compare(t, c, w, indexes)
			}
			for i, grown := range indexes {
				if fresh, grown := w.Index(fmt.Sprint("n", i)).Ruleset(), grown.Ruleset(); !sameRuleset(fresh, grown) {
					t.Fatalf("a new index has\n%+v\nand one that grew\n%+v", fresh, grown)
				}
			}
		})
	}
}

func sameRuleset(a, b policy.Ruleset) bool {
	sets := func(r policy.Ruleset) map[string]string {
		out := map[string]string{}
		for name, s := range r.Sets {
			out[name] = fmt.Sprint(s)
		}
		return out
	}
	return reflect.DeepEqual(a.Pods, b.Pods) && maps.Equal(sets(a), sets(b)) &&
		slices.Equal(a.PodCIDRs, b.PodCIDRs)
}
