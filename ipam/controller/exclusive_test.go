package controller

import (
	"testing"
	"time"
)

// exclusive returns a pool for the Nodes with a label, which use no other pool of the family.
func exclusive(p Pool, selector string) Pool {
	p = forLabel(p, selector)
	p.Exclusive = true
	return p
}

func TestAnExclusivePoolForSomeNodes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		pools := []Pool{
			pool("cloud", "10.244.0.0/16", 24), pool("v6", "fd00::/56", 64),
			exclusive(pool("dedicated", "10.0.96.0/23", 24), "dedicated=true"),
		}
		p := start(t, api, pools)
		pass(time.Second)
		dedicated := withLabel("dedicated", "true")
		api.add("c1")
		pass(time.Second)
		api.add("d1", dedicated)
		pass(time.Second)
		api.add("d2", dedicated)
		pass(time.Second)
		wantPodCIDRs(t, api, "c1", "10.244.0.0/24", "fd00::/64")
		wantPodCIDRs(t, api, "d1", "10.0.96.0/24", "fd00:0:0:60::/64")
		wantPodCIDRs(t, api, "d2", "10.0.97.0/24", "fd00:0:0:61::/64")

		// The pool is full: d3 waits for it, and takes no IPv6 prefix either.
		api.add("d3", dedicated)
		pass(time.Minute)
		wantPodCIDRs(t, api, "d3")
		p.events.want(t, 1, "d3 Warning PoolExhausted")
		p.wantMetric(t, rangesMetric, 1, "cloud", "allocated")
		p.wantMetric(t, rangesMetric, 3, "v6", "allocated")

		// A Node that the pool no longer selects keeps its podCIDRs, also after a restart.
		api.edit("d1", withLabel("dedicated", "false"))
		pass(time.Minute)
		p.stop()
		p = start(t, api, pools, notFirst)
		pass(time.Minute)
		wantPodCIDRs(t, api, "d1", "10.0.96.0/24", "fd00:0:0:60::/64")
		wantPodCIDRs(t, api, "d3")
		if got := p.events.of("d1"); len(got) > 0 {
			t.Errorf("events %q: nothing is wrong with d1", got)
		}

		api.delete("d2")
		pass(time.Minute)
		if got := api.podCIDRs("d3"); len(got) != 2 || got[0] != pfx("10.0.97.0/24") {
			t.Errorf("d3 has %v, want what became free", got)
		}
		p.stop()

		// A draining pool keeps its Nodes out of other pools.
		pools[2] = draining(pools[2])
		p = start(t, api, pools, notFirst)
		defer p.stop()
		pass(time.Minute)
		api.add("d4", dedicated)
		pass(time.Minute)
		wantPodCIDRs(t, api, "d4")
		p.events.want(t, 1, "d4 Warning NoPool")
		wantSound(t, api)
	})
}
