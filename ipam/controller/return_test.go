package controller

import (
	"testing"
	"time"
)

// A machine returns to the prefix that is routed to it. Before its Node is written, a leader with
// one more family replaces the reservation. The first prefix stays in quarantine while its route
// exists.
func TestAReturnThatIsReplacedLeavesAQuarantine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const wait = 5 * time.Minute
		api := newFakeAPI()
		api.invariants.quarantine = time.Minute
		former := start(t, api, []Pool{pool("v4", "10.0.0.0/23", 24)}, quarantine(wait), withRouted(api.routed))
		pass(time.Second)
		api.add("a", onMachine("cloud://1"))
		pass(time.Second)
		wantPodCIDRs(t, api, "a", "10.0.0.0/24")
		api.delete("a")
		pass(time.Second)
		api.inject(always("PATCH nodes", fault{refuse: true}))
		api.add("a", onMachine("cloud://1"))
		pass(time.Second)
		if got := entry(t, api, "a"); got.Prefixes[0] != pfx("10.0.0.0/24") || !got.Released.IsZero() {
			t.Fatalf("the ledger has %v for a, want its prefix reserved again", got)
		}
		former.stop()

		api.inject(nil)
		pools := []Pool{pool("v4", "10.0.0.0/23", 24), pool("v6", "fd00::/62", 64)}
		p := start(t, api, pools, quarantine(wait), withRouted(api.routed), notFirst)
		pass(time.Second)
		wantPodCIDRs(t, api, "a", "10.0.1.0/24", "fd00::/64")
		begin := time.Now()
		api.create("b")
		pass(time.Minute)
		wantPodCIDRs(t, api, "b")
		p.wantMetric(t, rangesMetric, 1, "v4", "quarantined")
		p.stop()

		p = start(t, api, pools, quarantine(wait), withRouted(api.routed), notFirst)
		defer p.stop()
		pass(2 * wait)
		wantPodCIDRs(t, api, "b") // the route still exists
		if left, _ := p.Departed(); len(left) != 1 || left[0].ProviderID != "cloud://1" {
			t.Errorf("Departed() = %v, want what was retired, with its machine", left)
		}
		api.removeStaleRoutes()
		pass(2 * quarantineLook)
		wantPodCIDRs(t, api, "b", "10.0.0.0/24", "fd00:0:0:1::/64")
		if age := time.Since(begin); age < wait {
			t.Errorf("the quarantine was over after %s", age)
		}
		wantSound(t, api)
	})
}
