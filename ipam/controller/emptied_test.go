package controller

import (
	"context"
	"slices"
	"testing"
	"time"
)

// Another client empties the ledger and leaves the ConfigMap. Reservations that it had may still be
// written, so it is treated as lost.
func TestAnEmptiedLedgerIsRebuiltAfterTheFence(t *testing.T) {
	bubble(t, func(t *testing.T) {
		lostWhileOnItsWay(t, newFakeAPI(), (*fakeAPI).emptyLedger, 1)
	})
}

// It is emptied under the running process, the only one so far, which has all reservations in
// memory.
func TestALedgerThatIsEmptiedMeanwhileIsWrittenAnew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(4))
		defer p.stop()
		pass(time.Second)
		api.inject(first("PATCH nodes", fault{late: 20 * time.Second}))
		api.create("a")
		pass(10 * time.Millisecond)
		api.emptyLedger()
		api.create("b")
		pass(time.Minute)
		wantPodCIDRs(t, api, "a", "10.0.0.0/24", "fd00::/64")
		wantPodCIDRs(t, api, "b", "10.0.1.0/24", "fd00:0:0:1::/64")
		for _, name := range []string{"a", "b"} {
			if got := entry(t, api, name); !slices.Equal(got.Prefixes, api.podCIDRs(name)) {
				t.Errorf("the ledger has %v for %s, which has %v", got.Prefixes, name, api.podCIDRs(name))
			}
		}
	})
}

// A ledger that was never used, or without Nodes left, doesn't count as emptied.
func TestALedgerWithoutNodesIsNotLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		for _, once := range []bool{true, false} {
			p := start(t, api, dualStack(4), func(c *Config) {
				c.First = func(context.Context) (bool, error) { return once, nil }
			})
			pass(time.Second)
			api.create("a")
			pass(time.Second)
			wantPodCIDRs(t, api, "a", "10.0.0.0/24", "fd00::/64")
			api.delete("a")
			pass(time.Minute)
			if got := api.holders(); len(got) > 0 {
				t.Errorf("the ledger has %q, want nobody", got)
			}
			p.events.want(t, 0, ledgerName)
			p.stop()
		}
		never := newFakeAPI()
		start(t, never, dualStack(4)).stop()
		p := start(t, never, dualStack(4))
		pass(time.Second)
		p.stop()
		p = start(t, never, dualStack(4), notFirst)
		defer p.stop()
		never.create("a")
		pass(time.Second)
		wantPodCIDRs(t, never, "a", "10.0.0.0/24", "fd00::/64")
		p.events.want(t, 0, ledgerName)
	})
}
