package controller

import (
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// These tests cover guards that the random schedules seldom need: each fails if its guard is
// removed, as test/checks/mutants shows.

// onItsWay delays the first PATCH of a Node, and rejects all following ones.
func onItsWay(name string, late time.Duration) func(call) fault {
	sent := false
	return func(c call) fault {
		switch {
		case c.kind != "PATCH nodes" || c.name != name:
			return fault{}
		case !sent:
			sent = true
			return fault{late: late}
		}
		return fault{refuse: true}
	}
}

// A user gives a Node another prefix in the ledger while a request with the first one is in flight:
// the first one stays recorded until the Node is observed.
func TestAReservationThatWasSentOutlivesAnEdit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(4))
		defer p.stop()
		pass(time.Second)
		api.inject(onItsWay("a", 40*time.Second))
		api.create("a")
		pass(5 * time.Second)
		api.editLedger(func(data map[string]string) {
			uid, _, _ := strings.Cut(data["a"], " ")
			data["a"] = uid + " 10.0.1.0/24@v4 fd00:0:0:1::/64@v6"
		})
		api.create("b") // it makes the edit visible
		pass(time.Second)
		for _, name := range []string{"c", "d"} {
			api.create(name)
		}
		pass(time.Minute)
		wantPodCIDRs(t, api, "a", "10.0.0.0/24", "fd00::/64")
		wantSound(t, api)
	})
}

// A user deletes a Node's record while a request with its reservation is in flight, sent by this
// process or by the one before it.
func TestAReservationThatWasSentOutlivesItsRecord(t *testing.T) {
	for name, restarted := range map[string]bool{"by this process": false, "by the one before": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				api := newFakeAPI()
				p := start(t, api, dualStack(2))
				pass(time.Second)
				api.inject(onItsWay("a", 40*time.Second))
				api.create("a")
				pass(5 * time.Second)
				if restarted {
					p.stop()
					api.edit("a", beingDeleted) // it keeps the next process from sending a request
					p = start(t, api, dualStack(2), notFirst)
					pass(5 * time.Second)
				}
				defer func() { p.stop() }()
				api.editLedger(func(data map[string]string) { delete(data, "a") })
				api.create("b")
				pass(time.Second)
				api.create("c")
				pass(time.Minute)
				wantPodCIDRs(t, api, "a", "10.0.0.0/24", "fd00::/64")
				wantSound(t, api)
			})
		})
	}
}

// A damaged record is repaired by deleting it, while the cache doesn't have the Node's podCIDRs.
func TestARepairedLedgerIsHeldAgainstLiveNodes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(2))
		pass(time.Second)
		p.stop()
		api.create("waits")
		api.stall()
		uid := api.create("unseen", "10.0.0.0/24", "fd00::/64")
		api.editLedger(func(data map[string]string) {
			data["unseen"] = "uid=" + string(uid) + " 10.0.0.0/24@v4 fd00::/64@v6 what=is-this"
		})
		p = start(t, api, dualStack(2), notFirst)
		defer p.stop()
		pass(2 * time.Second)
		p.events.want(t, 1, ledgerName+" Warning LedgerDamaged")
		api.editLedger(func(data map[string]string) { delete(data, "unseen") })
		pass(time.Minute)
		wantPodCIDRs(t, api, "waits", "10.0.1.0/24", "fd00:0:0:1::/64")
		wantSound(t, api)
	})
}

// The deleted Node may have had the abandoned prefix, so a route to that prefix extends the
// quarantine.
func TestARouteTowardAnAbandonedPrefixKeepsTheQuarantine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		var stands atomic.Bool
		stands.Store(true)
		routed := func(p netip.Prefix) (bool, bool) { return stands.Load() && p == pfx("10.0.0.0/24"), true }
		p := start(t, api, dualStack(2))
		pass(time.Second)
		p.stop()
		api.editLedger(func(data map[string]string) {
			data["gone"] = "uid=former 10.0.1.0/24@v4 fd00:0:0:1::/64@v6 abandoned=10.0.0.0/24@v4 released=2000-01-01T00:00:00Z"
		})
		p = start(t, api, dualStack(2), notFirst, withRouted(routed))
		defer p.stop()
		pass(5 * time.Minute)
		if api.stored()["gone"] == "" {
			t.Error("the quarantine is over, and a route toward 10.0.0.0/24 stands")
		}
		stands.Store(false)
		pass(time.Minute)
		if got := api.stored()["gone"]; got != "" {
			t.Errorf("no route stands any more, and the ledger has %q", got)
		}
	})
}

// A machine returns while no controller runs: its new Node waits until the API server confirms the
// deletion of the old one, and then gets the same prefixes.
func TestAMachineThatCameBackUnseenHasItsPrefixesAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(4))
		pass(time.Second)
		api.add("a", onMachine("cloud://1"))
		pass(time.Second)
		wantPodCIDRs(t, api, "a", "10.0.0.0/24", "fd00::/64")
		p.stop()
		api.delete("a")
		api.add("a", onMachine("cloud://1"))
		api.inject(always("GET nodes", fault{delay: 2 * time.Second}))
		p = start(t, api, dualStack(4), notFirst, quarantine(time.Minute))
		defer p.stop()
		pass(10 * time.Second)
		wantPodCIDRs(t, api, "a", "10.0.0.0/24", "fd00::/64")
		wantSound(t, api)
	})
}

// The ledger has a live Node as released: its prefixes are not freed before a response of the API
// server, however old the release is.
func TestALivingNodesQuarantineNeverEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(1))
		pass(time.Second)
		api.create("a")
		pass(time.Second)
		wantPodCIDRs(t, api, "a", "10.0.0.0/24", "fd00::/64")
		p.stop()
		api.editLedger(func(data map[string]string) { data["a"] += " released=2000-01-01T00:00:00Z" })
		api.inject(always("GET nodes", fault{refuse: true}))
		p = start(t, api, dualStack(1), notFirst)
		defer p.stop()
		api.create("b")
		pass(5 * time.Minute)
		wantPodCIDRs(t, api, "b")
		api.inject(nil)
		pass(time.Minute)
		if h := entry(t, api, "a"); !h.Released.IsZero() {
			t.Errorf("Node a is there, and the ledger has %q", api.stored()["a"])
		}
		wantSound(t, api)
	})
}

// A process with a wrong clock recorded a release in the future: the quarantine ends nevertheless.
func TestAQuarantineThatBeginsInTheFutureEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(2))
		pass(time.Second)
		p.stop()
		api.editLedger(func(data map[string]string) {
			data["gone"] = "uid=former 10.0.0.0/24@v4 fd00::/64@v6 released=2099-01-01T00:00:00Z"
		})
		p = start(t, api, dualStack(2), notFirst, quarantine(time.Minute))
		defer p.stop()
		pass(50 * time.Second)
		if api.stored()["gone"] == "" {
			t.Error("the quarantine did not last its time")
		}
		pass(time.Minute)
		if got := api.stored()["gone"]; got != "" {
			t.Errorf("the quarantine is not over: the ledger has %q", got)
		}
	})
}

// The ledger is deleted while a prefix is in quarantine: the running process keeps the quarantine.
func TestAQuarantineOutlivesALostLedger(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(1), notFirst, quarantine(10*time.Minute))
		defer p.stop()
		pass(fence + time.Second)
		api.create("a")
		pass(time.Second)
		wantPodCIDRs(t, api, "a", "10.0.0.0/24", "fd00::/64")
		api.delete("a")
		api.deleteLedger()
		pass(5 * time.Minute)
		api.create("b")
		pass(time.Minute)
		wantPodCIDRs(t, api, "b")
		pass(5 * time.Minute)
		wantPodCIDRs(t, api, "b", "10.0.0.0/24", "fd00::/64")
		wantSound(t, api)
	})
}

// A Node has its podCIDRs, which the cache doesn't show yet, when its record is deleted by hand.
func TestPodCIDRsThatTheCacheLacksOutliveTheirRecord(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(4), quarantine(10*time.Minute))
		defer p.stop()
		pass(time.Second)
		api.add("late", onMachine("cloud://1"))
		pass(time.Second)
		api.delete("late")
		pass(time.Second)
		api.create("late") // it waits for its provider ID, until comeback
		api.inject(first("PATCH nodes", fault{delay: time.Second}))
		api.create("a")
		pass(0)
		api.stall()
		pass(2 * time.Second)
		wantPodCIDRs(t, api, "a", "10.0.1.0/24", "fd00:0:0:1::/64")
		api.editLedger(func(data map[string]string) { delete(data, "a") })
		pass(comeback + time.Second)
		wantPodCIDRs(t, api, "late", "10.0.2.0/24", "fd00:0:0:2::/64")
		wantSound(t, api)
	})
}

// A stale cache still has a deleted Node when its record, which is in quarantine, is removed from
// the ledger. The Node is taken for one that exists until the cache shows that it is gone, and its
// prefixes are free after a quarantine then.
func TestARemovedQuarantineBeginsAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(8), quarantine(10*time.Minute))
		defer p.stop()
		pass(time.Second)
		for i, name := range []string{"one", "two"} {
			api.add(name, onMachine("cloud://"+name))
			pass(time.Duration(i+1) * time.Second)
			api.delete(name)
		}
		api.create("a")
		pass(time.Second)
		wantPodCIDRs(t, api, "a", "10.0.2.0/24", "fd00:0:0:2::/64")
		api.create("one") // each waits for its provider ID, until comeback
		pass(10 * time.Second)
		api.create("two")
		pass(time.Second)
		api.stall()
		api.delete("a")
		api.editLedger(func(data map[string]string) {
			data["a"] += " released=" + time.Now().UTC().Format(time.RFC3339)
		})
		pass(comeback - 10*time.Second) // one writes, and the ledger is read again
		api.editLedger(func(data map[string]string) { delete(data, "a") })
		pass(10 * time.Second) // two writes
		api.resume()
		pass(11 * time.Minute)
		for _, name := range []string{"b", "c", "d", "e", "f", "g"} {
			api.create(name)
		}
		pass(time.Minute)
		served := 0
		for name := range api.live() {
			if len(api.podCIDRs(name)) > 0 {
				served++
			}
		}
		if served != 8 {
			t.Errorf("%d of 8 Nodes have podCIDRs:\n%s", served, api)
		}
		wantSound(t, api)
	})
}
