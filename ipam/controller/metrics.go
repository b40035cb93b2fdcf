package controller

import (
	"fmt"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/ipam"
)

// Registry takes metrics; component-base's registries are such.
type Registry interface {
	Register(metrics.Registerable) error
}

// ipamMetrics shows the pools and what became of Nodes.
type ipamMetrics struct {
	ranges                           *metrics.GaugeVec
	allocations, releases, conflicts *metrics.Counter
	latency                          *metrics.Histogram
	ledgerWrites                     *metrics.CounterVec
}

func newMetrics(r Registry) (*ipamMetrics, error) {
	counter := func(name, help string) *metrics.Counter {
		return metrics.NewCounter(&metrics.CounterOpts{Namespace: "underlay", Subsystem: "ipam", Name: name, Help: help})
	}
	m := &ipamMetrics{
		ranges: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Namespace: "underlay", Subsystem: "ipam", Name: "ranges",
			Help: "Number of node prefixes by pool and state: free, allocated (held by or reserved for a Node), quarantined (its Node is gone), excluded, foreign (overlapping a podCIDR that the pool would not hand out).",
		}, []string{"pool", "state"}),
		allocations: counter("allocations_total", "Number of Nodes that were given their podCIDRs, all families counted as one."),
		releases:    counter("releases_total", "Number of Nodes that are gone and whose prefixes were released."),
		conflicts:   counter("conflicts_total", "Number of Nodes that turned out to have other podCIDRs than those reserved for them."),
		latency: metrics.NewHistogram(&metrics.HistogramOpts{
			Namespace: "underlay", Subsystem: "ipam", Name: "allocation_duration_seconds",
			Help:    "Seconds from a Node's creation (known to the second) until its podCIDRs are known to be set, for Nodes that this controller gave them.",
			Buckets: []float64{0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800},
		}),
	}
	m.ledgerWrites = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "underlay", Subsystem: "ipam", Name: "ledger_writes_total",
		Help: "Number of writes of the stored ledger by what became of them: written, conflict (another process or a person changed it first), failed (not known to be written).",
	}, []string{"outcome"})
	for _, metric := range []metrics.Registerable{m.ledgerWrites, m.ranges, m.allocations, m.releases, m.conflicts, m.latency} {
		if err := r.Register(metric); err != nil {
			return nil, fmt.Errorf("registering the node IPAM metrics: %w", err)
		}
	}
	return m, nil
}

func (m *ipamMetrics) allocated(after time.Duration) {
	m.allocations.Inc()
	m.latency.Observe(after.Seconds())
}

func (m *ipamMetrics) showRanges(counts []ipam.Counts) {
	for _, c := range counts {
		for state, n := range map[string]uint64{
			"free": c.Free, "allocated": c.Allocated, "quarantined": c.Quarantined, "excluded": c.Excluded, "foreign": c.Foreign,
		} {
			m.ranges.WithLabelValues(c.Name, state).Set(float64(n))
		}
	}
}
