package controller

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/ipam"
)

// A process dies at each of its writes, before or after it is applied, and another process
// continues: with a pool that is just large enough, every Node has its podCIDRs in the end, and no
// two Nodes have the same.
func TestACrashAtEveryWrite(t *testing.T) {
	for last := 1; last < 80; last++ {
		died := false
		for _, before := range []bool{true, false} {
			t.Run(fmt.Sprintf("write %d before %t", last, before), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					died = crashAt(t, last, before) || died
				})
			})
		}
		if !died {
			if last < 8+2*ipam.Shards {
				t.Errorf("the whole course took %d writes: too few to mean anything", last-1)
			}
			return
		}
	}
	t.Error("there is no end of writes")
}

// crashAt ends a process at one of its writes while Nodes are created, deleted and recreated, and
// reports whether there were that many writes.
func crashAt(t *testing.T, last int, before bool) bool {
	api := newFakeAPI()
	api.invariants.quarantine = time.Minute
	settings := []setting{
		quarantine(time.Minute), withRouted(api.routed), func(c *Config) { c.Fence = 5 * time.Second },
	}
	p := prepare(t, api, dualStack(4), settings...)
	p.connection.trap = &trap{nth: last, early: before}
	p.begin()
	settings = append(settings, notFirst)
	died := false
	revive := func() {
		if !p.connection.alive() {
			died = true
			p.stop()
			p = start(t, api, dualStack(4), settings...)
			pass(10 * time.Second)
		}
	}
	for _, step := range []func(){
		func() { api.add("a", onMachine("cloud://1")); api.create("b") },
		func() { api.create("c") },
		func() { api.delete("a"); api.removeStaleRoutes() },
		func() { api.add("a", onMachine("cloud://1")); api.delete("b") },
		func() { api.create("b"); api.removeStaleRoutes() },
	} {
		step()
		pass(10 * time.Second)
		revive()
	}
	pass(5 * time.Minute)
	revive()
	pass(5 * time.Minute)
	defer p.stop()
	for _, name := range []string{"a", "b", "c"} {
		if got := api.podCIDRs(name); len(got) != 2 || !slices.Equal(entry(t, api, name).Prefixes, got) {
			t.Errorf("Node %s has %v, the ledger has %q", name, got, api.stored()[name])
		}
	}
	p.wantMetric(t, rangesMetric, 1, "v4", "free")
	p.wantMetric(t, rangesMetric, 3, "v6", "allocated")
	wantSound(t, api)
	return died
}

// The leader is stopped (SIGSTOP) at each of its writes, while another takes over and assigns the
// free prefixes to other Nodes; then the former leader resumes with its old state.
func TestAFormerLeaderThatWakesLate(t *testing.T) {
	for _, kind := range []string{"PUT configmaps", "PATCH nodes"} {
		for _, answered := range []bool{false, true} {
			t.Run(fmt.Sprint(kind, " answered ", answered), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					api := newFakeAPI()
					former := start(t, api, dualStack(2))
					defer former.stop()
					pass(time.Second)
					former.connection.trap = &trap{kind: kind, nth: 1, early: !answered, freeze: true}
					api.create("a")
					pass(time.Second)

					leader := start(t, api, dualStack(2), notFirst)
					defer leader.stop()
					pass(time.Second)
					// a is deleted, and after a moment its name is reused; b and c take all free
					// prefixes.
					api.delete("a")
					pass(5 * time.Second)
					api.create("b")
					api.create("c")
					pass(20 * time.Second)
					api.create("a")
					pass(time.Second)
					b, c := api.podCIDRs("b"), api.podCIDRs("c")
					if len(b) != 2 || len(c) != 2 {
						t.Fatalf("the new leader gave b %v and c %v\n%s", b, c, api)
					}
					former.connection.thaw()
					pass(time.Minute)
					wantPodCIDRs(t, api, "a")
					if got := api.podCIDRs("b"); !slices.Equal(got, b) {
						t.Errorf("Node b had %v, has %v", b, got)
					}
					for _, name := range []string{"b", "c"} {
						if got := entry(t, api, name); !slices.Equal(got.Prefixes, api.podCIDRs(name)) ||
							!got.Released.IsZero() {
							t.Errorf("the ledger has %v for %s, which has %v", got, name, api.podCIDRs(name))
						}
					}
					wantSound(t, api)
				})
			})
		}
	}
}
