package agent

import (
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
