package controller

import (
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/internal/promauto"
	"github.com/underlay-ccm/underlay/ipam"
)

type ipamMetrics struct {
	ranges, active                   *metrics.GaugeVec
	waiting, second                  *metrics.Gauge
	allocations, releases, conflicts *metrics.Counter
	unloaded, written                *metrics.Counter
	latency                          *metrics.Histogram
	ledgerWrites                     *metrics.CounterVec
}

func newMetrics(r promauto.Registry) (*ipamMetrics, error) {
	f := promauto.With(r, "ipam")
	return &ipamMetrics{
		waiting:     f.Gauge("waiting_nodes", "Number of Nodes that can't be given podCIDRs now; the condition underlay.dev/PodCIDRsAllocated of each has the reason."),
		second:      f.Gauge("second_allocator", "1 while nothing is allocated because another program sets podCIDRs: until the admission policy prevents that, or a Node has waited a minute without podCIDRs; else 0."),
		ranges:      f.GaugeVec("ranges", "Number of node prefixes by pool, family (ipv4, ipv6) and state: free (not in a pool of the servers' own prefixes, where each server brings its own), allocated (held by or reserved for a Node), quarantined (its Node is gone), excluded, foreign (overlapping a podCIDR that the pool would not allocate, or a route of the network that is no Node's).", "pool", "family", "state"),
		active:      f.GaugeVec("pool_active", "1 while prefixes are allocated from the pool of the labels pool and family, 0 while it is draining.", "pool", "family"),
		unloaded:    f.Counter("ledger_load_failures_total", "Number of times that the stored ledger could not be loaded; nothing is allocated until it can."),
		written:     f.Counter("ledger_written_bytes_total", "Number of bytes of names and lines that were written to the stored ledger; each write has a whole ConfigMap."),
		allocations: f.Counter("allocations_total", "Number of Nodes that were given their podCIDRs, all families counted as one."),
		releases:    f.Counter("releases_total", "Number of deleted Nodes, with prefixes that were released."),
		conflicts:   f.Counter("conflicts_total", "Number of Nodes that turned out to have other podCIDRs than those reserved for them."),
		ledgerWrites: f.CounterVec("ledger_writes_total",
			"Number of writes of the stored ledger by outcome: written, conflict (another process or a person changed it first), failed (not known to be written).",
			"outcome"),
		latency: f.Histogram("allocation_duration_seconds",
			"Seconds from a Node's creation (known to the second) until its podCIDRs are known to be set, for Nodes that this controller gave them.",
			[]float64{0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800}),
	}, f.Err()
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
