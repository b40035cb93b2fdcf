package controller

import (
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/internal/kube"
)

// routeTable is a Routed port with the same result for all prefixes.
type routeTable struct{ routed, unknown atomic.Bool }

func (r *routeTable) check(netip.Prefix) (routed, known bool) {
	return r.routed.Load(), !r.unknown.Load()
}

func TestAQuarantineLastsItsTimeAndUntilTheRouteIsGoneForSure(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api, routes := newFakeAPI(), &routeTable{}
		p := start(t, api, dualStack(1), quarantine(5*time.Minute), withRouted(routes.check))
		defer p.stop()
		pass(time.Second)
		uid := api.add("a", onMachine("cloud://1"))
		pass(time.Second)
		api.create("b")
		pass(time.Second)
		gone := time.Now()
		api.delete("a")
		pass(unhurried + time.Second)
		if got := entry(t, api, "a"); got.Node.UID != string(uid) || got.Released.Before(gone) || got.Released.After(gone.Add(time.Second)) {
			t.Errorf("the ledger has %v for a, want it released at %s, to the second", got, gone)
		}
		want := []kube.Departed{{Name: "a", ProviderID: "cloud://1", Prefixes: prefixes("10.0.0.0/24", "fd00::/64")}}
		if got, _ := p.Departed(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("Departed() = %v, want %v", got, want)
		}
		p.wantMetric(t, rangesMetric, 2, "quarantined")

		routes.unknown.Store(true)
		pass(5*time.Minute - unhurried - 2*time.Second)
		wantPodCIDRs(t, api, "b")
		pass(5 * time.Minute) // the time is over, but the routes are unknown
		wantPodCIDRs(t, api, "b")
		routes.routed.Store(true)
		routes.unknown.Store(false)
		pass(5 * time.Minute) // the prefixes are routed
		wantPodCIDRs(t, api, "b")
		if got, _ := p.Departed(); len(got) != 1 {
			t.Errorf("Departed() = %v while the route stands", got)
		}
		routes.routed.Store(false)
		pass(2 * quarantineLook)
		wantPodCIDRs(t, api, "b", "10.0.0.0/24", "fd00::/64")
		if got, _ := p.Departed(); len(got) != 0 {
			t.Errorf("Departed() = %v after the quarantine", got)
		}
		if got := api.holders(); !slices.Equal(got, []string{"b"}) {
			t.Errorf("the ledger has %q, want b", got)
		}
		wantSound(t, api)
	})
}

func TestAQuarantineIsNotOverBeforeItsTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(1), quarantine(5*time.Minute), withRouted(api.routed))
		defer p.stop()
		pass(time.Second)
		api.create("a")
		pass(time.Second)
		api.create("b")
		api.delete("a")
		api.removeStaleRoutes()
		pass(5*time.Minute - time.Second)
		wantPodCIDRs(t, api, "b")
		pass(quarantineLook + 2*time.Second)
		wantPodCIDRs(t, api, "b", "10.0.0.0/24", "fd00::/64")
	})
}

// Neither restarts nor a change of the leader shorten or restart a quarantine.
func TestAQuarantineSurvivesRestarts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		settings := []setting{notFirst, quarantine(10 * time.Minute)}
		p := start(t, api, dualStack(1), settings...)
		pass(fence + time.Second)
		api.create("a")
		pass(time.Second)
		api.create("b")
		api.delete("a")
		pass(time.Second)
		gone := time.Now()
		for range 3 {
			p.connection.die()
			p.stop()
			p = start(t, api, dualStack(1), settings...)
			pass(3 * time.Minute)
			wantPodCIDRs(t, api, "b")
			if got, _ := p.Departed(); len(got) != 1 || got[0].Name != "a" {
				t.Errorf("Departed() = %v after a restart, want a", got)
			}
		}
		defer p.stop()
		pass(time.Until(gone.Add(10*time.Minute + quarantineLook + time.Second)))
		wantPodCIDRs(t, api, "b", "10.0.0.0/24", "fd00::/64")
	})
}

// A Node was deleted while no process ran: the next process notices it, and the quarantine begins
// then.
func TestANodeThatWentUnseenIsReleased(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(1), quarantine(5*time.Minute))
		pass(time.Second)
		api.create("a")
		pass(time.Second)
		p.stop()
		api.delete("a")
		api.create("b")
		pass(time.Hour)
		p = start(t, api, dualStack(1), quarantine(5*time.Minute), notFirst)
		defer p.stop()
		pass(4 * time.Minute)
		wantPodCIDRs(t, api, "b")
		pass(2 * time.Minute)
		wantPodCIDRs(t, api, "b", "10.0.0.0/24", "fd00::/64")
		wantSound(t, api)
	})
}

// The same machine returns under its name: it gets the same prefixes at once, also from the next
// process.
func TestAMachineThatComesBackHasItsPrefixesAgain(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("restart ", restart), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				api := newFakeAPI()
				settings := []setting{quarantine(5 * time.Minute), withRouted(api.routed)}
				p := start(t, api, dualStack(4), settings...)
				pass(time.Second)
				api.add("a", onMachine("cloud://1"))
				pass(time.Second)
				api.add("b", onMachine("cloud://2"))
				pass(time.Second)
				api.delete("a")
				pass(time.Minute)
				if restart {
					p.stop()
					p = start(t, api, dualStack(4), append(settings, notFirst)...)
				}
				defer p.stop()
				uid := api.add("a", onMachine("cloud://1"))
				pass(time.Second)
				wantPodCIDRs(t, api, "a", "10.0.0.0/24", "fd00::/64")
				if got := entry(t, api, "a"); got.Node.UID != string(uid) || !got.Released.IsZero() {
					t.Errorf("the ledger has %v for a", got)
				}
				pass(time.Hour)
				if got, _ := p.Departed(); len(got) > 0 {
					t.Errorf("Departed() = %v, want nobody: a is back", got)
				}
				p.wantMetric(t, rangesMetric, 4, "allocated")
				wantSound(t, api)
			})
		})
	}
}

// Another machine takes over the name: the prefixes of the first one stay in quarantine.
func TestAnotherMachineUnderTheNameHasOtherPrefixes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(4), quarantine(5*time.Minute), withRouted(api.routed))
		defer p.stop()
		pass(time.Second)
		api.add("a", onMachine("cloud://1"))
		pass(time.Second)
		api.delete("a")
		api.add("a", onMachine("cloud://2"))
		pass(time.Minute)
		wantPodCIDRs(t, api, "a", "10.0.1.0/24", "fd00:0:0:1::/64")
		if got, _ := p.Departed(); len(got) != 1 || got[0].ProviderID != "cloud://1" {
			t.Errorf("Departed() = %v, want the first machine", got)
		}
		wantSound(t, api)
	})
}

// A machine is recognised by its provider ID, which a new Node gets a little later: the Node waits
// for it, but not for long.
func TestANodeWhoseNameWasInUseWaitsForItsProviderID(t *testing.T) {
	for name, c := range map[string]struct {
		id   string
		want []string
	}{
		"the same":  {"cloud://1", []string{"10.0.0.0/24", "fd00::/64"}},
		"another":   {"cloud://2", []string{"10.0.1.0/24", "fd00:0:0:1::/64"}},
		"never one": {"", []string{"10.0.1.0/24", "fd00:0:0:1::/64"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				api := newFakeAPI()
				p := start(t, api, dualStack(4), quarantine(5*time.Minute))
				defer p.stop()
				pass(time.Second)
				api.add("a", onMachine("cloud://1"))
				pass(time.Second)
				api.delete("a")
				pass(time.Second)
				api.create("a")
				pass(10 * time.Second)
				wantPodCIDRs(t, api, "a")
				if c.id != "" {
					api.edit("a", onMachine(c.id))
					pass(time.Second)
				} else {
					pass(comeback)
				}
				wantPodCIDRs(t, api, "a", c.want...)
				wantSound(t, api)
			})
		})
	}
}

// A Node is deleted before its prefixes are written. The write may be in flight, but its UID keeps
// it from any other Node. The Node is released like the others.
func TestANodeThatGoesBeforeItHasAnything(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(1), quarantine(time.Minute))
		defer p.stop()
		pass(time.Second)
		api.inject(first("PATCH nodes", fault{late: 30 * time.Second}))
		api.create("a")
		pass(50 * time.Millisecond)
		api.delete("a")
		api.create("a")
		pass(5 * time.Minute)
		wantPodCIDRs(t, api, "a", "10.0.0.0/24", "fd00::/64")
		if got := entry(t, api, "a"); got.Node.UID != "uid-2" {
			t.Errorf("the ledger has %v for a", got)
		}
		p.wantMetric(t, "underlay_ipam_releases_total", 1)
		wantSound(t, api)
	})
}

// Deleting one of two Nodes with the same prefix doesn't free the prefix.
func TestAPrefixOfTwoNodesIsFreeWhenBothAreGone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		api.create("a", "10.0.0.0/24", "fd00::/64")
		pass(time.Second)
		api.create("b", "10.0.0.0/24", "fd00::/64")
		p := start(t, api, dualStack(1))
		defer p.stop()
		api.create("c")
		pass(time.Second)
		p.events.want(t, 2, "b Warning DuplicatePodCIDR") // one for each family
		api.delete("a")
		pass(time.Hour)
		wantPodCIDRs(t, api, "c")
		api.delete("b")
		pass(time.Minute)
		wantPodCIDRs(t, api, "c", "10.0.0.0/24", "fd00::/64")
	})
}

// A Node that is being deleted keeps its podCIDRs until it is gone: its pods may still run.
func TestANodeBeingDeletedHoldsItsPodCIDRs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(1))
		defer p.stop()
		pass(time.Second)
		api.create("a")
		pass(time.Second)
		api.edit("a", beingDeleted)
		api.create("b")
		pass(time.Hour)
		wantPodCIDRs(t, api, "b")
		if got, _ := p.Departed(); len(got) > 0 {
			t.Errorf("Departed() = %v while the Node exists", got)
		}
		api.delete("a")
		pass(time.Minute)
		wantPodCIDRs(t, api, "b", "10.0.0.0/24", "fd00::/64")
	})
}
