package agent

import (
	"fmt"
	"strings"

	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/policy"
)

// Registry registers metrics. The registries of component-base implement it.
type Registry interface {
	Register(metrics.Registerable) error
}

// drops counts dropped packets by the policies that isolate the pod.
type drops struct {
	dropped *metrics.CounterVec
	seen    map[string]uint64 // by the names of chains
}

func newDrops(r Registry) (*drops, error) {
	d := &drops{dropped: metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "underlay", Subsystem: "policy", Name: "dropped_packets_total",
		Help: "Number of packets that this node dropped because no NetworkPolicy allows them, by direction and by the policies that isolate the pod.",
	}, []string{"direction", "policies"})}
	if err := r.Register(d.dropped); err != nil {
		return nil, fmt.Errorf("registering the metrics of NetworkPolicies: %w", err)
	}
	return d, nil
}

// add adds what the kernel has counted since the last call. A counter that is lower began again.
func (d *drops) add(now map[*policy.Chain]uint64) {
	seen := map[string]uint64{}
	for chain, packets := range now {
		since := packets
		if before := d.seen[chain.Name]; before <= packets {
			since -= before
		}
		seen[chain.Name] = packets
		names := make([]string, len(chain.Policies))
		for i, name := range chain.Policies {
			names[i] = name.String()
		}
		d.dropped.WithLabelValues(chain.Direction.String(), strings.Join(names, ",")).Add(float64(since))
	}
	d.seen = seen
}
