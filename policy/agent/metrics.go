package agent

import (
	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/internal/promauto"
	"github.com/underlay-ccm/underlay/policy"
)

// drops counts dropped packets by the policies that isolate the pod. A policy has a series while it
// isolates a pod of the node.
type drops struct {
	dropped *metrics.CounterVec
	seen    map[string]uint64 // by the names of chains
	series  map[[2]string]bool
}

func newDrops(r promauto.Registry) (*drops, error) {
	auto := promauto.With(r, "policy")
	return &drops{dropped: auto.CounterVec("dropped_packets_total",
		"Number of packets that this node dropped because no NetworkPolicy allows them, by direction and by the policy that isolates the pod; of several, each counts the packet.",
		"direction", "policy")}, auto.Err()
}

// add adds what the kernel has counted since the last call. A counter that is lower began again.
func (d *drops) add(now map[*policy.Chain]uint64) {
	seen, series := map[string]uint64{}, map[[2]string]bool{}
	for chain, packets := range now {
		since := packets
		if before := d.seen[chain.Name]; before <= packets {
			since -= before
		}
		seen[chain.Name] = packets
		for _, name := range chain.Policies {
			labels := [2]string{chain.Direction.String(), name.String()}
			series[labels] = true
			d.dropped.WithLabelValues(labels[:]...).Add(float64(since))
		}
	}
	for labels := range d.series {
		if !series[labels] {
			d.dropped.Delete(map[string]string{"direction": labels[0], "policy": labels[1]})
		}
	}
	d.seen, d.series = seen, series
}
