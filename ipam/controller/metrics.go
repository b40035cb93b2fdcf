package controller

import (
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/ipam"
)

// Registry registers metrics. The registries of component-base implement it.
type Registry interface {
	Register(metrics.Registerable) error
}

type ipamMetrics struct {
	ranges, active                   *metrics.GaugeVec
	waiting, second                  *metrics.Gauge
	allocations, releases, conflicts *metrics.Counter
	unloaded, written                *metrics.Counter
	latency                          *metrics.Histogram
	ledgerWrites                     *metrics.CounterVec
}

func newMetrics(r Registry) (*ipamMetrics, error) {
	opts := func(name, help string) *metrics.KubeOpts {
		return &metrics.KubeOpts{Namespace: "underlay", Subsystem: "ipam", Name: name, Help: help}
	}
	counter := func(name, help string) *metrics.Counter {
		return metrics.NewCounter((*metrics.CounterOpts)(opts(name, help)))
	}
	gauge := func(name, help string) *metrics.Gauge {
		return metrics.NewGauge((*metrics.GaugeOpts)(opts(name, help)))
	}
	gauges := func(name, help string, labels ...string) *metrics.GaugeVec {
		return metrics.NewGaugeVec((*metrics.GaugeOpts)(opts(name, help)), labels)
	}
	m := &ipamMetrics{
		waiting:     gauge("waiting_nodes", "Number of Nodes that can't be given podCIDRs now; the condition underlay.dev/PodCIDRsAllocated of each has the reason."),
		second:      gauge("second_allocator", "1 while nothing is allocated because another program sets podCIDRs: until the admission policy prevents that, or a Node has waited a minute without podCIDRs; else 0."),
		ranges:      gauges("ranges", "Number of node prefixes by pool, family (ipv4, ipv6) and state: free (not in a pool of the servers' own prefixes, where each server brings its own), allocated (held by or reserved for a Node), quarantined (its Node is gone), excluded, foreign (overlapping a podCIDR that the pool would not allocate, or a route of the network that is no Node's).", "pool", "family", "state"),
		active:      gauges("pool_active", "1 while prefixes are allocated from the pool of the labels pool and family, 0 while it is draining.", "pool", "family"),
		unloaded:    counter("ledger_load_failures_total", "Number of times that the stored ledger could not be loaded; nothing is allocated until it can."),
		written:     counter("ledger_written_bytes_total", "Number of bytes of names and lines that were written to the stored ledger; each write has a whole ConfigMap."),
		allocations: counter("allocations_total", "Number of Nodes that were given their podCIDRs, all families counted as one."),
		releases:    counter("releases_total", "Number of deleted Nodes, with prefixes that were released."),
		conflicts:   counter("conflicts_total", "Number of Nodes that turned out to have other podCIDRs than those reserved for them."),
		ledgerWrites: metrics.NewCounterVec((*metrics.CounterOpts)(opts("ledger_writes_total",
			"Number of writes of the stored ledger by outcome: written, conflict (another process or a person changed it first), failed (not known to be written).")),
			[]string{"outcome"}),
		latency: metrics.NewHistogram(&metrics.HistogramOpts{
			Namespace: "underlay", Subsystem: "ipam", Name: "allocation_duration_seconds",
			Help:    "Seconds from a Node's creation (known to the second) until its podCIDRs are known to be set, for Nodes that this controller gave them.",
			Buckets: []float64{0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800},
		}),
	}
	for _, metric := range []metrics.Registerable{
		m.ledgerWrites, m.written, m.unloaded, m.ranges, m.active, m.waiting, m.second, m.allocations,
		m.releases, m.conflicts, m.latency,
	} {
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

func (m *ipamMetrics) wrote(w ipam.Write, err error) {
	outcome := "failed"
	switch {
	case err == nil:
		outcome = "written"
		m.written.Add(float64(w.Bytes))
	case apierrors.IsConflict(err):
		outcome = "conflict"
	}
	m.ledgerWrites.WithLabelValues(outcome).Inc()
}

func (m *ipamMetrics) showTrouble(waiting int, second bool) {
	m.waiting.Set(float64(waiting))
	m.second.Set(map[bool]float64{true: 1}[second])
}

func (m *ipamMetrics) showRanges(counts []ipam.Counts) {
	for _, c := range counts {
		family := map[bool]string{true: "ipv4", false: "ipv6"}[c.Pool.Addr().Is4()]
		m.active.WithLabelValues(c.Name, family).Set(map[bool]float64{true: 1}[c.State == ipam.Active])
		for state, n := range map[string]uint64{
			"free": c.Free, "allocated": c.Allocated, "quarantined": c.Quarantined, "excluded": c.Excluded,
			"foreign": c.Foreign,
		} {
			if state == "free" && !c.Pool.IsValid() {
				continue // 0 would be read as exhausted, and each server has its own prefix
			}
			m.ranges.WithLabelValues(c.Name, family, state).Set(float64(n))
		}
	}
}
