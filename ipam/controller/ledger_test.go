package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/ipam"
)

// entry parses the stored entry of a name.
func entry(t *testing.T, api *fakeAPI, name string) ipam.Holding {
	t.Helper()
	h, err := ipam.ParseRecord(name, api.stored()[name])
	if err != nil {
		t.Errorf("the stored ledger has %q for %s: %v\n%s", api.stored()[name], name, err, api)
	}
	return h
}

func TestARecordComesBeforeThePatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(4))
		defer p.stop()
		pass(time.Second)
		made := api.trace()
		posts := slices.DeleteFunc(slices.Clone(made), func(c string) bool { return c != "POST configmaps" })
		if len(made) != 2*ipam.Shards || !slices.Equal(made[:ipam.Shards], posts) {
			t.Errorf("an empty cluster takes %q, want every ConfigMap made, then filled", made)
		}
		api.inject(always("PUT configmaps", fault{delay: 10 * time.Second}))
		uid := api.add("a", onMachine("cloud://1"))
		pass(5 * time.Second)
		wantPodCIDRs(t, api, "a")
		pass(6 * time.Second)
		wantPodCIDRs(t, api, "a", "10.0.0.0/24", "fd00::/64")
		if got := api.trace(); !slices.Equal(got, []string{"PUT configmaps underlay-node-ipam", "PATCH nodes a"}) {
			t.Errorf("one Node takes %q, want one record and one patch", got)
		}
		want := "uid=" + string(uid) + " id=cloud://1 10.0.0.0/24@v4 fd00::/64@v6"
		if got := api.stored()["a"]; got != want {
			t.Errorf("the stored ledger has %q, want %q", got, want)
		}
		wantSound(t, api)
	})
}

// Another process records a reservation first: its prefix can't be assigned, and the rejected write
// isn't sent again.
func TestAConflictIsPlannedAnew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(4))
		defer p.stop()
		pass(time.Second)
		api.inject(always("PUT configmaps", fault{delay: time.Second}))
		api.create("other")
		pass(0)
		api.editLedger(func(data map[string]string) {
			data["other"] = "uid=uid-1 10.0.1.0/24@v4 fd00:0:0:1::/64@v6"
		})
		api.create("a")
		pass(time.Minute)
		wantPodCIDRs(t, api, "other", "10.0.1.0/24", "fd00:0:0:1::/64")
		if got := api.podCIDRs("a"); len(got) != 2 || got[0] == pfx("10.0.1.0/24") {
			t.Errorf("Node a has %v, want something that the other doesn't have", got)
		}
		if api.sent() != 2 {
			t.Errorf("%d PATCH requests for two Nodes", api.sent())
		}
		p.wantMetric(t, "underlay_ipam_ledger_writes_total", 1, "conflict")
		wantSound(t, api)
	})
}

func TestALostReplyToTheRecord(t *testing.T) {
	for name, what := range map[string]fault{
		"applied":       {lose: true},
		"not applied":   {drop: true},
		"applied later": {late: 5 * time.Second},
		"much later":    {late: time.Minute},
		"refused":       {refuse: true},
		"slow":          {delay: 2 * attemptTimeout},
		"a proxy's 404": {page: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				api := newFakeAPI()
				p := start(t, api, dualStack(1))
				defer p.stop()
				pass(time.Second)
				api.inject(first("PUT configmaps", what))
				uid := api.create("a")
				pass(10 * time.Minute)
				wantPodCIDRs(t, api, "a", "10.0.0.0/24", "fd00::/64")
				if api.sent() != 1 {
					t.Errorf("%d PATCH requests, want 1", api.sent())
				}
				if got := entry(t, api, "a"); got.Node.UID != string(uid) {
					t.Errorf("the ledger has %v for a", got)
				}
				if n := api.ledgerWrites() - 2*ipam.Shards; n > 2 {
					t.Errorf("%d writes of the ledger: one was lost, one more is enough", n)
				}
				p.wantMetric(t, rangesMetric, 0, "free")
				wantSound(t, api)
			})
		})
	}
}

// A lost reply to the creation of the ledger is no loss of the ledger.
func TestALostReplyToTheCreation(t *testing.T) {
	for name, what := range map[string]fault{"applied": {lose: true}, "later": {late: 500 * time.Millisecond}, "not": {drop: true}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				api := newFakeAPI()
				api.inject(first("POST configmaps", what))
				api.create("a")
				p := start(t, api, dualStack(1))
				defer p.stop()
				pass(20 * time.Second)
				wantPodCIDRs(t, api, "a", "10.0.0.0/24", "fd00::/64")
				p.events.want(t, 0, ledgerName)
				wantSound(t, api)
			})
		})
	}
}

// A creation arrives after the ledger that it created was deleted: it lacks the prefixes assigned
// since.
func TestALateCreationIsNotTakenForTheLedger(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		api.inject(first("POST configmaps", fault{late: 20 * time.Second}))
		p := start(t, api, dualStack(4))
		api.create("a")
		pass(5 * time.Second)
		wantPodCIDRs(t, api, "a", "10.0.0.0/24", "fd00::/64")
		p.stop()
		api.deleteLedger()
		pass(20 * time.Second) // it has arrived
		api.delete("a")
		api.create("b")
		p = start(t, api, dualStack(4), notFirst)
		defer p.stop()
		pass(fence - time.Second)
		wantPodCIDRs(t, api, "b")
		p.events.want(t, 1, ledgerName+" Warning LedgerLost")
		pass(time.Minute)
		wantPodCIDRs(t, api, "b", "10.0.0.0/24", "fd00::/64")
		wantSound(t, api)
	})
}

// A process that isn't the first finds no ledger: the former one may still be writing reservations
// of it.
func TestAMissingLedgerIsRebuiltAfterTheFence(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		lostWhileOnItsWay(t, api, (*fakeAPI).deleteLedger, 2)
		wantSound(t, api)
	})
}

// lostWhileOnItsWay loses the ledger while the request for a reservation is in flight. It expects
// made creations of each ConfigMap in total.
func lostWhileOnItsWay(t *testing.T, api *fakeAPI, lose func(*fakeAPI), made int) {
	t.Helper()
	former := start(t, api, dualStack(4))
	pass(time.Second)
	api.create("a")
	pass(time.Second)
	api.inject(first("PATCH nodes", fault{late: 20 * time.Second}))
	api.create("b") // 10.0.1.0/24, in flight when the ledger is lost
	pass(10 * time.Millisecond)
	former.connection.die()
	former.stop()
	lose(api)
	api.stall() // so that only a live list shows the podCIDRs of b
	begin := time.Now()
	p := start(t, api, dualStack(4), notFirst)
	defer p.stop()
	api.create("c")
	api.resume()
	api.stall()
	pass(fence - time.Second)
	if n := api.sent(); n != 2 {
		t.Errorf("%d PATCH requests, want only the two of the former process until %s after %s\n%s", n, fence, begin, api)
	}
	got := p.events.of(ledgerName + " Warning LedgerLost")
	if len(got) != 1 || !strings.Contains(got[0], fence.String()) || !strings.Contains(got[0], "lacks ConfigMaps") {
		t.Errorf("events %q, want one LedgerLost that tells how long", got)
	}
	api.resume()
	pass(5 * time.Second)
	wantPodCIDRs(t, api, "a", "10.0.0.0/24", "fd00::/64")
	wantPodCIDRs(t, api, "b", "10.0.1.0/24", "fd00:0:0:1::/64")
	if got := api.podCIDRs("c"); len(got) != 2 || slices.Contains(got, pfx("10.0.1.0/24")) {
		t.Errorf("Node c has %v after the fence, want something of its own", got)
	}
	for _, name := range []string{"a", "b", "c"} {
		if got := entry(t, api, name); !slices.Equal(got.Prefixes, api.podCIDRs(name)) {
			t.Errorf("the ledger has %v for %s, which has %v", got.Prefixes, name, api.podCIDRs(name))
		}
	}
	if n := api.count("POST configmaps"); n != made*ipam.Shards {
		t.Errorf("ConfigMaps were made %d times, want each %d times", n, made)
	}
}

// Another client deletes the ledger under the running process.
func TestALedgerDeletedMeanwhileIsNoticedAtTheNextWrite(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(4), notFirst)
		defer p.stop()
		pass(fence + time.Second)
		api.create("a")
		pass(time.Second)
		api.deleteLedger()
		api.create("b")
		pass(fence - time.Second)
		wantPodCIDRs(t, api, "b")
		pass(5 * time.Second)
		wantPodCIDRs(t, api, "a", "10.0.0.0/24", "fd00::/64")
		wantPodCIDRs(t, api, "b", "10.0.1.0/24", "fd00:0:0:1::/64")
		if got := api.holders(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("the rebuilt ledger has %q", got)
		}
		p.events.want(t, 2, ledgerName+" Warning LedgerLost")
		wantSound(t, api)
	})
}

// The ledger is lost while the only process so far has a write in flight: it still has the
// reservation in memory.
func TestALostLedgerDoesNotFreePrefixesInFlight(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(2))
		defer p.stop()
		pass(time.Second)
		api.inject(oneOf(first("PATCH nodes", fault{late: time.Minute}), always("GET nodes", fault{refuse: true})))
		api.create("a")
		pass(time.Second)
		api.deleteLedger()
		api.create("b")
		api.create("c")
		pass(10 * time.Minute)
		api.inject(nil)
		pass(10 * time.Minute)
		wantPodCIDRs(t, api, "a", "10.0.0.0/24", "fd00::/64")
		wantSound(t, api)
	})
}

func TestOnlyTheFirstProcessEverNeedsNoFence(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		checked := 0
		p := start(t, api, dualStack(1), func(c *Config) {
			c.First = func(context.Context) (bool, error) {
				if checked++; checked < 3 {
					return false, errors.New("no answer")
				}
				return true, nil
			}
		})
		defer p.stop()
		api.create("a")
		pass(20 * time.Second)
		wantPodCIDRs(t, api, "a", "10.0.0.0/24", "fd00::/64")
		if checked != 3 {
			t.Errorf("asked %d times who was first, want until there is an answer", checked)
		}
		p.events.want(t, 0, ledgerName)
	})
}

// Damage stops allocation until a user repairs it; the controller never overwrites it.
func TestADamagedLedgerIsNeverReset(t *testing.T) {
	for name, what := range map[string]string{
		"an unknown word":   "uid=uid-9 10.0.3.0/24@v4 colour=blue",
		"no uid":            "10.0.3.0/24@v4",
		"no prefix":         "uid=uid-9 10.0.3.0@v4",
		"nothing":           "",
		"an unmasked one":   "uid=uid-9 10.0.3.1/24@v4",
		"a second bad line": "uid=uid-8 10.0.2.0/24@v4\nuid=uid-9",
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				api := newFakeAPI()
				p := start(t, api, dualStack(4))
				defer p.stop()
				pass(time.Second)
				api.create("a")
				pass(time.Second)
				api.editLedger(func(data map[string]string) { data["worker-9"] = what })
				damaged := api.stored()
				api.create("b")
				pass(5 * time.Minute)
				wantPodCIDRs(t, api, "b")
				got := p.events.of(ledgerName + " Warning LedgerDamaged")
				if len(got) == 0 || !strings.Contains(got[0], `"worker-9"`) || !strings.Contains(got[0], "kubectl edit") {
					t.Errorf("events %q, want one that names the key and the remedy", got)
				}
				if failures, _ := p.metric(t, "underlay_ipam_ledger_load_failures_total"); failures == 0 {
					t.Error("no metric shows that the ledger can't be loaded")
				}
				if fmt.Sprint(api.stored()) != fmt.Sprint(damaged) {
					t.Errorf("the damaged ledger was changed: %v", api.stored())
				}
				api.editLedger(func(data map[string]string) { delete(data, "worker-9") })
				pass(11 * time.Second)
				wantPodCIDRs(t, api, "a", "10.0.0.0/24", "fd00::/64")
				wantPodCIDRs(t, api, "b", "10.0.1.0/24", "fd00:0:0:1::/64")
				wantSound(t, api)
			})
		})
	}
}

// A record that a user added for a missing Node is looked up and freed.
func TestARecordOfAMissingNodeIsFreed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		api.editLedger(func(data map[string]string) { data["ghost"] = "uid=gone 10.0.0.0/24@v4 fd00::/64@v6" })
		p := start(t, api, dualStack(1))
		defer p.stop()
		api.create("a")
		pass(time.Minute)
		wantPodCIDRs(t, api, "a", "10.0.0.0/24", "fd00::/64")
		if got := api.holders(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("the ledger has %q, want a alone", got)
		}
	})
}

// Deleting one key by hand is the documented repair: the entry is restored from the Node's
// podCIDRs.
func TestADeletedKeyComesBackFromTheNode(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(2))
		pass(time.Second)
		uid := api.create("a")
		pass(time.Second)
		p.stop()
		api.editLedger(func(data map[string]string) { delete(data, "a") })
		p = start(t, api, dualStack(2), notFirst)
		defer p.stop()
		pass(unhurried + time.Second)
		if got := entry(t, api, "a"); got.Node.UID != string(uid) || !slices.Equal(got.Prefixes, api.podCIDRs("a")) {
			t.Errorf("the ledger has %v for a, which has %v", got, api.podCIDRs("a"))
		}
		api.create("b")
		pass(time.Second)
		wantPodCIDRs(t, api, "b", "10.0.1.0/24", "fd00:0:0:1::/64")
		wantSound(t, api)
	})
}

// A machine's ID that is set later is recorded too, so that the machine is recognised after a
// return.
func TestAProviderIDThatComesLaterIsRecorded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(2))
		defer p.stop()
		pass(time.Second)
		api.create("a")
		pass(time.Second)
		api.edit("a", onMachine("cloud://7"))
		pass(unhurried + time.Second)
		if got := entry(t, api, "a"); got.Node.ProviderID != "cloud://7" {
			t.Errorf("the ledger has %v for a, want its provider ID", got)
		}
	})
}

// The record of a missing Node has the prefix of a live Node, which is routed.
func TestADuplicateRecordOfAMissingNodeIsFreed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(2), withRouted(api.routed))
		defer p.stop()
		pass(time.Second)
		api.create("a")
		pass(time.Second)
		api.editLedger(func(data map[string]string) { data["ghost"] = "uid=gone 10.0.0.0/24@v4 fd00::/64@v6" })
		api.create("b")
		pass(10 * time.Minute)
		wantPodCIDRs(t, api, "b", "10.0.1.0/24", "fd00:0:0:1::/64")
		if got := api.holders(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("the ledger has %q, want a and b", got)
		}
		wantSound(t, api)
	})
}
