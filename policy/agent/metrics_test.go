package agent

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	"github.com/underlay-ccm/underlay/policy"
)

func TestDropsAreCountedOnAcrossChains(t *testing.T) {
	registry := metrics.NewKubeRegistry()
	d, err := newDrops(registry)
	if err != nil {
		t.Fatal(err)
	}
	chain := func(name string, policies ...string) *policy.Chain { // each compilation makes another
		c := &policy.Chain{Name: name, Direction: policy.Egress}
		for _, p := range policies {
			c.Policies = append(c.Policies, policy.Name{Namespace: "a", Name: p})
		}
		return c
	}
	expect := func(series string) {
		t.Helper()
		if series != "" {
			series = `
		# HELP underlay_policy_dropped_packets_total [ALPHA] Number of packets that this node dropped because no NetworkPolicy allows them, by direction and by the policy that isolates the pod; of several, each counts the packet.
		# TYPE underlay_policy_dropped_packets_total counter
` + series
		}
		if err := testutil.GatherAndCompare(registry, strings.NewReader(series), "underlay_policy_dropped_packets_total"); err != nil {
			t.Error(err)
		}
	}
	for _, packets := range []uint64{3, 5, 1} { // the kernel's counter begins again
		d.add(map[*policy.Chain]uint64{chain("x", "one", "two"): packets, chain("y", "two"): 7})
	}
	expect(`
		underlay_policy_dropped_packets_total{direction="egress",policy="a/one"} 6
		underlay_policy_dropped_packets_total{direction="egress",policy="a/two"} 13
	`)
	// The series of a policy that isolates no pod of the node any more ends.
	d.add(map[*policy.Chain]uint64{chain("y", "two"): 8})
	expect(`
		underlay_policy_dropped_packets_total{direction="egress",policy="a/two"} 14
	`)
	d.add(nil)
	expect("")
}

func TestAFailedCountEndsNoSeries(t *testing.T) {
	f := newFixture(t, false)
	f.table.drops = map[*policy.Chain]uint64{{Name: "x", Policies: []policy.Name{{Namespace: "shop", Name: "deny"}}}: 3}
	if err := f.agent.work(t.Context(), count); err != nil {
		t.Fatal(err)
	}
	f.table.fail(errors.New("the kernel is busy"))
	if err := f.agent.work(t.Context(), count); err == nil || len(f.agent.drops.series) != 1 {
		t.Errorf("%v; series: %v", err, f.agent.drops.series)
	}
}

func TestTheTableGetsTheGroupToLogTo(t *testing.T) {
	f := newFixture(t, false, deny(), podOn("self", "db", "10.0.0.5"))
	f.agent.LogGroup = 7
	f.run()
	f.await("the pod is isolated", func() bool { return f.table.is(true, "10.0.0.5") })
	f.table.mu.Lock()
	defer f.table.mu.Unlock()
	if f.table.rules.LogGroup != 7 {
		t.Errorf("the group is %d", f.table.rules.LogGroup)
	}
}
