package agent

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/component-base/metrics"
)

// Registry registers metrics. The registries of component-base implement it.
type Registry interface {
	Register(metrics.Registerable) error
}

type agentMetrics struct {
	routes        *metrics.GaugeVec
	unreachable   *metrics.Gauge
	endpoints     *metrics.Gauge
	tunnels       *metrics.GaugeVec
	ready         *metrics.Gauge
	repairs       *metrics.CounterVec
	writes        *metrics.CounterVec
	passes        *metrics.CounterVec
	eventsLost    *metrics.Counter
	nodeToKernel  *metrics.Histogram
	repairSeconds *metrics.Histogram
}

func newMetrics(r Registry) (*agentMetrics, error) {
	counters := func(name, help string, labels ...string) *metrics.CounterVec {
		return metrics.NewCounterVec(&metrics.CounterOpts{Namespace: "underlay", Subsystem: "agent", Name: name, Help: help}, labels)
	}
	seconds := func(name, help string) *metrics.Histogram {
		return metrics.NewHistogram(&metrics.HistogramOpts{
			Namespace: "underlay", Subsystem: "agent", Name: name, Help: help,
			Buckets: metrics.ExponentialBuckets(0.0001, 2, 18), // to 13 s
		})
	}
	m := &agentMetrics{
		routes: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Namespace: "underlay", Subsystem: "agent", Name: "routes",
			Help: "Number of routes that this node should have, by state: standing, missing (could not be written), refused (somebody else's stands there).",
		}, []string{"state"}),
		unreachable: metrics.NewGauge(&metrics.GaugeOpts{
			Namespace: "underlay", Subsystem: "agent", Name: "unreachable_peers",
			Help: "Number of nodes whose pods can't be reached from this node.",
		}),
		endpoints: metrics.NewGauge(&metrics.GaugeOpts{
			Namespace: "underlay", Subsystem: "agent", Name: "open_endpoints",
			Help: "Number of pods' addresses with ports on this node that load balancers may reach.",
		}),
		tunnels: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Namespace: "underlay", Subsystem: "agent", Name: "tunnels",
			Help: "Number of nodes to which this node has a WireGuard tunnel, or should have one, by state: connected (has shaken hands), waiting (has not), keyless (no key to use). While keys are replaced, each device counts.",
		}, []string{"state"}),
		ready: metrics.NewGauge(&metrics.GaugeOpts{
			Namespace: "underlay", Subsystem: "agent", Name: "ready",
			Help: "1 while this node's network is as it should be, as /readyz says; else 0.",
		}),
		repairs: counters("repairs_total", "Number of things that somebody else had changed and that were put right, by part: routes, or the name of another part of the node's network.", "part"),
		writes:  counters("route_writes_total", "Number of changes to the kernel's table by verb (add, replace, delete) and outcome (ok, error).", "verb", "outcome"),
		passes:  counters("passes_total", "Number of times that everything was looked at and put right, by outcome (ok, error).", "outcome"),
		eventsLost: metrics.NewCounter(&metrics.CounterOpts{
			Namespace: "underlay", Subsystem: "agent", Name: "kernel_events_lost_total",
			Help: "Number of times that the kernel's events began anew, the start included: each leads to a look at everything.",
		}),
		nodeToKernel:  seconds("node_to_kernel_seconds", "Time from the event of a Node that changed to its routes standing in the kernel."),
		repairSeconds: seconds("route_repair_seconds", "Time from the event of a route of ours that somebody deleted to the route standing again."),
	}
	for _, metric := range []metrics.Registerable{
		m.routes, m.unreachable, m.endpoints, m.tunnels, m.ready, m.repairs, m.writes, m.passes, m.eventsLost, m.nodeToKernel, m.repairSeconds,
	} {
		if err := r.Register(metric); err != nil {
			return nil, fmt.Errorf("registering the agent's metrics: %w", err)
		}
	}
	return m, nil
}

func (m *agentMetrics) wrote(verb string, err error) {
	m.writes.WithLabelValues(verb, outcomeOf(err)).Inc()
}

func (m *agentMetrics) passed(err error) {
	m.passes.WithLabelValues(outcomeOf(err)).Inc()
}

func outcomeOf(err error) string {
	if err != nil {
		return "error"
	}
	return "ok"
}

func (m *agentMetrics) show(s Situation, d Decision, missing int) {
	m.routes.WithLabelValues("missing").Set(float64(missing))
	m.routes.WithLabelValues("refused").Set(float64(len(d.Plan.Refused)))
	m.routes.WithLabelValues("standing").Set(float64(len(d.Want) - len(d.Plan.Refused) - missing))
	m.unreachable.Set(float64(len(d.Peers)))
	m.endpoints.Set(float64(d.View.endpoints()))
	if !s.Tunnels.Enabled {
		return
	}
	plans, connected, all := slices.Concat([]TunnelPlan{d.Tunnels}, d.Retiring), 0, 0
	for i, device := range slices.Concat([]TunnelState{s.Tunnel}, s.Retiring) {
		for _, peer := range plans[i].Peers {
			if all++; device.handshaken(peer.PublicKey) {
				connected++
			}
		}
	}
	m.tunnels.WithLabelValues("connected").Set(float64(connected))
	m.tunnels.WithLabelValues("waiting").Set(float64(all - connected))
	m.tunnels.WithLabelValues("keyless").Set(float64(len(d.Tunnels.Keyless)))
}

func (m *agentMetrics) reached(events []time.Time, now time.Time) {
	for _, at := range events {
		m.nodeToKernel.Observe(now.Sub(at).Seconds())
	}
}
