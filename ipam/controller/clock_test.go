package controller

import (
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// The former leader's clock was behind, so that the quarantine looks as if it were over.
func TestAnotherLeadersClockEndsNoQuarantine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(1), quarantine(5*time.Minute))
		pass(time.Second)
		api.create("a")
		pass(time.Second)
		api.delete("a")
		pass(30 * time.Second) // the release of a is recorded
		p.stop()
		api.editLedger(func(data map[string]string) {
			uid, _, quarantined := strings.Cut(data["a"], releasedWord)
			if !quarantined {
				t.Fatalf("no quarantine in %q", data["a"])
			}
			data["a"] = uid + releasedWord + time.Now().Add(-10*time.Minute).UTC().Format(time.RFC3339)
		})
		api.create("b")
		p = start(t, api, dualStack(1), quarantine(5*time.Minute), notFirst)
		defer p.stop()
		pass(5*time.Minute - time.Second)
		wantPodCIDRs(t, api, "b")
		pass(2 * quarantineLook)
		wantPodCIDRs(t, api, "b", "10.0.0.0/24", "fd00::/64")
	})
}

const releasedWord = "released="

// The clock was an hour ahead when a Node was deleted, and is right again.
func TestAClockThatIsSetBackStretchesNoQuarantine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(1), quarantine(5*time.Minute))
		defer p.stop()
		pass(time.Second)
		uid := api.create("a")
		pass(time.Second)
		// A release keeps its first time.
		p.decider.ledger.Release(string(uid), moment().Add(time.Hour))
		api.delete("a")
		api.create("b")
		pass(5*time.Minute - time.Second)
		wantPodCIDRs(t, api, "b")
		pass(2 * quarantineLook)
		wantPodCIDRs(t, api, "b", "10.0.0.0/24", "fd00::/64")
	})
}

// The record of a live Node is marked as released by hand: when the Node is deleted later, its
// quarantine is counted from then.
func TestAQuarantineThatWasTakenBackIsCountedAnew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(1), quarantine(5*time.Minute))
		defer p.stop()
		pass(time.Second)
		api.create("a")
		pass(time.Second)
		api.editLedger(func(data map[string]string) {
			data["a"] += " " + releasedWord + time.Now().UTC().Format(time.RFC3339)
		})
		api.create("b")
		api.delete("b") // the write of its record fails, as the ledger was changed
		pass(10 * time.Minute)
		wantPodCIDRs(t, api, "a", "10.0.0.0/24", "fd00::/64")
		api.create("c")
		pass(time.Second)
		api.delete("a")
		pass(5*time.Minute - 2*time.Second)
		wantPodCIDRs(t, api, "c")
		pass(2 * quarantineLook)
		wantPodCIDRs(t, api, "c", "10.0.0.0/24", "fd00::/64")
	})
}

// A list of routes that was requested before the deletion of a Node doesn't show a route that was
// added later.
func TestOnlyAListAfterTheEndOfANodeEndsItsQuarantine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		var listed atomic.Int64 // in seconds since 1970
		list := func() { listed.Store(time.Now().Unix()) }
		list()
		p := start(t, api, dualStack(1), quarantine(5*time.Minute), func(c *Config) {
			c.Routed = func(_ netip.Prefix, since time.Time) (routed, known bool) {
				return false, listed.Load() >= since.Unix()
			}
		})
		defer p.stop()
		pass(time.Second)
		api.create("a")
		pass(time.Second)
		list()
		pass(time.Second)
		api.delete("a")
		api.create("b")
		pass(10 * time.Minute)
		wantPodCIDRs(t, api, "b")
		list()
		pass(2 * quarantineLook)
		wantPodCIDRs(t, api, "b", "10.0.0.0/24", "fd00::/64")
	})
}
