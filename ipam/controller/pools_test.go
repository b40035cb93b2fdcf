package controller

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"
)

func forLabel(p Pool, selector string) Pool {
	parsed, err := labels.Parse(selector)
	if err != nil {
		panic(err)
	}
	p.Selector = parsed
	return p
}

// While the IPv6 pool is full, the Nodes take no IPv4 prefixes, however often the controller tries;
// a second pool then serves all waiting Nodes.
func TestAFullFamilyBurnsNothingOfTheOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		pools := []Pool{pool("v4", "10.0.0.0/16", 24), pool("v6", "fd00::/63", 64)}
		p := start(t, api, pools)
		pass(time.Second)
		for i := range 6 {
			api.create(fmt.Sprint("n", i))
			pass(time.Second)
		}
		for range 10 {
			api.heartbeat("n3")
			api.heartbeat("n5")
			pass(time.Minute)
		}
		p.wantMetric(t, rangesMetric, 2, "v4", "allocated")
		p.wantMetric(t, rangesMetric, 254, "v4", "free")
		if got := api.holders(); !slices.Equal(got, []string{"n0", "n1"}) {
			t.Errorf("the ledger has %q, want those that have something", got)
		}
		if api.sent() != 2 {
			t.Errorf("%d PATCH requests, want 2", api.sent())
		}
		p.stop()
		p = start(t, api, append(pools, pool("more", "fd00:0:0:8::/62", 64)), notFirst)
		defer p.stop()
		pass(time.Minute)
		for i := range 6 {
			if got := api.podCIDRs(fmt.Sprint("n", i)); len(got) != 2 || !got[0].Addr().Is4() || got[1].Addr().Is4() {
				t.Errorf("Node n%d has %v, want one of each family, IPv4 first", i, got)
			}
		}
		p.wantMetric(t, rangesMetric, 6, "v4", "allocated")
		wantSound(t, api)
	})
}

// Pools change over a cluster's life: a second one is added, the first drained and, once no Node
// has a prefix of it, removed.
func TestAPoolIsAddedDrainedAndRemoved(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		v4, v6, more := pool("v4", "10.0.0.0/23", 24), pool("v6", "fd00::/60", 64), pool("more", "10.1.0.0/24", 26)
		run := func(pools ...Pool) *process {
			p := start(t, api, pools, quarantine(time.Minute))
			pass(time.Second)
			return p
		}
		p := run(v4, v6)
		api.create("a")
		pass(time.Second)
		p.stop()
		p = run(draining(v4), v6, more)
		api.create("b")
		pass(time.Second)
		wantPodCIDRs(t, api, "a", "10.0.0.0/24", "fd00::/64")
		wantPodCIDRs(t, api, "b", "10.1.0.0/26", "fd00:0:0:1::/64")
		if got := p.events.of(""); len(got) > 0 {
			t.Errorf("events %q: a draining pool is no reason to complain", got)
		}
		p.stop()
		before := api.stored()

		p = run(v6, more)
		select {
		case <-p.ended:
		default:
			t.Fatal("the controller runs though a's pool is not configured any more")
		}
		var refused *RemovedPoolError
		if !errors.As(p.err, &refused) || refused.Pool != "v4" || !strings.Contains(refused.Holders, "a (10.0.0.0/24)") {
			t.Errorf("Run: %v, want that v4 is held by a", p.err)
		}
		p.stop()
		if fmt.Sprint(api.stored()) != fmt.Sprint(before) {
			t.Errorf("a refused configuration changed the ledger to %v", api.stored())
		}

		p = run(draining(v4), v6, more)
		api.delete("a")
		pass(2 * time.Minute)
		p.stop()
		p = run(v6, more)
		defer p.stop()
		api.create("c")
		pass(time.Second)
		if got := api.podCIDRs("c"); len(got) != 2 || got[1] != pfx("10.1.0.64/26") {
			t.Errorf("Node c has %v, want of the pools that are left", got)
		}
		wantSound(t, api)
	})
}

// A pool's mask is changed while Nodes have prefixes of it.
func TestAnotherMaskForAPoolInUseIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, []Pool{pool("v4", "10.0.0.0/22", 24)})
		pass(time.Second)
		api.create("a")
		pass(time.Second)
		p.stop()
		p = start(t, api, []Pool{pool("v4", "10.0.0.0/22", 25)}, notFirst)
		api.create("b")
		pass(time.Minute)
		var refused *RemovedPoolError
		if p.stop(); !errors.As(p.err, &refused) || refused.Pool != "v4" {
			t.Errorf("Run: %v, want that the pool is not as it was", p.err)
		}
		wantPodCIDRs(t, api, "b")
	})
}

// Nodes of a moved cluster have prefixes of another length than the pool's: no overlapping prefix
// is assigned.
func TestPrefixesOfOtherLengthsAreNeverOverlapped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		api.create("small", "10.0.0.128/26")
		api.create("large", "10.0.4.0/23")
		p := start(t, api, []Pool{pool("v4", "10.0.0.0/21", 24)})
		defer p.stop()
		for i := range 6 {
			api.create(fmt.Sprint("n", i))
		}
		pass(time.Minute)
		served := 0
		for name := range api.live() {
			for _, p := range api.podCIDRs(name) {
				if strings.HasPrefix(name, "n") {
					served++
					if p.Overlaps(pfx("10.0.0.128/26")) || p.Overlaps(pfx("10.0.4.0/23")) {
						t.Errorf("Node %s got %s", name, p)
					}
				}
			}
		}
		if served != 5 {
			t.Errorf("%d Nodes were served, want the 5 for which there is room", served)
		}
		wantSound(t, api)
	})
}

func TestAPoolForSomeNodesOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, []Pool{
			forLabel(pool("east", "10.0.0.0/23", 24), "zone=east"),
			forLabel(pool("west", "10.1.0.0/23", 24), "zone=west"),
		})
		defer p.stop()
		pass(time.Second)
		api.add("w", withLabel("zone", "west"))
		api.add("e", withLabel("zone", "east"))
		api.add("nowhere")
		pass(time.Second)
		wantPodCIDRs(t, api, "w", "10.1.0.0/24")
		wantPodCIDRs(t, api, "e", "10.0.0.0/24")
		wantPodCIDRs(t, api, "nowhere")
		p.events.want(t, 1, "nowhere Warning NoPool")
		api.edit("nowhere", withLabel("zone", "west"))
		pass(time.Second)
		wantPodCIDRs(t, api, "nowhere", "10.1.1.0/24")
		// Labels that change later have no effect: podCIDRs are immutable.
		api.edit("w", withLabel("zone", "east"))
		pass(time.Minute)
		wantPodCIDRs(t, api, "w", "10.1.0.0/24")
		api.add("w2", withLabel("zone", "west"))
		pass(time.Second)
		p.events.want(t, 1, "w2 Warning PoolExhausted")
		wantSound(t, api)
	})
}

// When a cluster becomes dual-stack, existing Nodes keep their podCIDRs and get an Event, and new
// ones get both families.
func TestFromSingleToDualStack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, []Pool{pool("v4", "10.0.0.0/22", 24)})
		pass(time.Second)
		api.create("old")
		pass(time.Second)
		p.stop()
		p = start(t, api, []Pool{pool("v4", "10.0.0.0/22", 24), pool("v6", "fd00::/62", 64)}, notFirst)
		defer p.stop()
		api.create("new")
		pass(time.Minute)
		wantPodCIDRs(t, api, "old", "10.0.0.0/24")
		wantPodCIDRs(t, api, "new", "10.0.1.0/24", "fd00::/64")
		p.events.want(t, 1, "old Warning MissingPodCIDR")
		if api.sent() != 2 {
			t.Errorf("%d PATCH requests, want one for each Node", api.sent())
		}
	})
}

// The prefix that was freed last is assigned last, also after a restart.
func TestARangeJustFreedIsUsedLast(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(4))
		defer p.stop()
		pass(time.Second)
		api.create("a")
		pass(time.Second)
		api.delete("a")
		pass(time.Minute)
		for i, want := range []string{"10.0.1.0/24", "10.0.2.0/24", "10.0.3.0/24", "10.0.0.0/24"} {
			name := fmt.Sprint("n", i)
			api.create(name)
			pass(time.Second)
			if got := api.podCIDRs(name); len(got) != 2 || got[0] != pfx(want) {
				t.Errorf("Node %s has %v, want %s", name, got, want)
			}
		}
	})
}
