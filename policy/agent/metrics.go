package agent

import (
	"fmt"

	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/policy"
)

// Registry registers metrics. The registries of component-base implement it.
type Registry interface {
	Register(metrics.Registerable) error
}

// drops counts dropped packets by the policies that isolate the pod. A policy has a series while it
// isolates a pod of the node.
type drops struct {
	dropped *metrics.CounterVec
	seen    map[string]uint64 // by the names of chains
	series  map[[2]string]bool
}

func newDrops(r Registry) (*drops, error) {
	d := &drops{dropped: metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "underlay", Subsystem: "policy", Name: "dropped_packets_total",
		Help: "Number of packets that this node dropped because no NetworkPolicy allows them, by direction and by the policy that isolates the pod; of several, each counts the packet.",
	}, []string{"direction", "policy"})}
	if err := r.Register(d.dropped); err != nil {
		return nil, fmt.Errorf("registering the metrics of NetworkPolicies: %w", err)
	}
	return d, nil
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
