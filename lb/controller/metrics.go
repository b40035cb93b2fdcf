package controller

import (
	"time"

	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/internal/promauto"
	"github.com/underlay-ccm/underlay/lb"
)

type controllerMetrics struct {
	syncs    *metrics.CounterVec
	duration *metrics.Histogram
	ops      *metrics.CounterVec
	drifted  *metrics.Counter
	orphaned *metrics.Gauge
}

func newMetrics(r promauto.Registry) (*controllerMetrics, error) {
	f := promauto.With(r, "lb")
	return &controllerMetrics{
		syncs: f.CounterVec("syncs_total",
			"Reconciliations of Services of type LoadBalancer by result: done, refused (done as far as possible; the condition underlay.dev/Accepted names the change that a person should make), failed (will be retried).",
			"result"),
		duration: f.Histogram("sync_duration_seconds",
			"Time of one reconciliation of a Service, with all requests to the cloud and their actions.",
			metrics.ExponentialBuckets(0.01, 3, 9)),
		ops: f.CounterVec("operations_total",
			"Changes to load balancers by operation and result: done, refused by the cloud, failed.",
			"operation", "result"),
		drifted: f.Counter("drifted_total",
			"Services whose load balancers were found to differ from the desired state by the regular comparison with the cloud."),
		orphaned: f.Gauge("orphaned_load_balancers",
			"Load balancers with this cluster's label whose Service does not exist, at the last regular comparison with the cloud. They are never deleted."),
	}, f.Err()
}

const (
	resultDone    = "done"
	resultRefused = "refused"
	resultFailed  = "failed"
)

func (m *controllerMetrics) done(op lb.Op, result string) {
	m.ops.WithLabelValues(lb.Kind(op), result).Inc()
}

func (m *controllerMetrics) synced(start time.Time, result string) {
	m.duration.Observe(time.Since(start).Seconds())
	m.syncs.WithLabelValues(result).Inc()
}
