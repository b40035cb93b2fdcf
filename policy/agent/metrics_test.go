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
	chain := func() *policy.Chain { // each compilation makes another
		return &policy.Chain{
			Name: "x", Direction: policy.Egress,
			Policies: []policy.Name{{Namespace: "a", Name: "one"}, {Namespace: "a", Name: "two"}},
		}
	}
	for _, packets := range []uint64{3, 5, 1} { // the kernel's counter begins again
		d.add(map[*policy.Chain]uint64{chain(): packets})
	}
	const want = `
		# HELP underlay_policy_dropped_packets_total [ALPHA] Number of packets that this node dropped because no NetworkPolicy allows them, by direction and by the policies that isolate the pod.
		# TYPE underlay_policy_dropped_packets_total counter
		underlay_policy_dropped_packets_total{direction="egress",policies="a/one,a/two"} 6
	`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
