package controller

import (
	"errors"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/lb"
)

// Registry takes the controller's metrics.
type Registry interface {
	Register(metrics.Registerable) error
}

type controllerMetrics struct {
	syncs    *metrics.CounterVec
	duration *metrics.Histogram
	ops      *metrics.CounterVec
	drifted  *metrics.Counter
	orphaned *metrics.Gauge
}

func newMetrics(r Registry) (*controllerMetrics, error) {
	m := &controllerMetrics{
		syncs: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "underlay_lb_syncs_total", StabilityLevel: metrics.ALPHA,
			Help: "Reconciliations of Services of type LoadBalancer by result: done, refused (done as far as possible; the condition underlay.dev/Accepted names the change that a person should make), failed (will be retried).",
		}, []string{"result"}),
		duration: metrics.NewHistogram(&metrics.HistogramOpts{
			Name: "underlay_lb_sync_duration_seconds", StabilityLevel: metrics.ALPHA,
			Help:    "Time of one reconciliation of a Service, with all requests to the cloud and their actions.",
			Buckets: metrics.ExponentialBuckets(0.01, 3, 9),
		}),
		ops: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "underlay_lb_operations_total", StabilityLevel: metrics.ALPHA,
			Help: "Changes to load balancers by operation and result: done, refused by the cloud, failed.",
		}, []string{"operation", "result"}),
		drifted: metrics.NewCounter(&metrics.CounterOpts{
			Name: "underlay_lb_drifted_total", StabilityLevel: metrics.ALPHA,
			Help: "Services whose load balancers were found to differ from the desired state by the regular comparison with the cloud.",
		}),
		orphaned: metrics.NewGauge(&metrics.GaugeOpts{
			Name: "underlay_lb_orphaned_load_balancers", StabilityLevel: metrics.ALPHA,
			Help: "Load balancers with this cluster's label whose Service does not exist, at the last regular comparison with the cloud. They are never deleted.",
		}),
	}
	return m, errors.Join(r.Register(m.syncs), r.Register(m.duration), r.Register(m.ops), r.Register(m.drifted), r.Register(m.orphaned))
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
