package agent

import (
	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/internal/promauto"
)

type agentMetrics struct {
	routes      *metrics.GaugeVec
	unreachable *metrics.Gauge
	tunnels     *metrics.GaugeVec
	ready       *metrics.Gauge
	repairs     *metrics.CounterVec
	writes      *metrics.CounterVec
	passes      *metrics.CounterVec
	eventsLost  *metrics.Counter
}

func newMetrics(r promauto.Registry) (*agentMetrics, error) {
	f := promauto.With(r, "agent")
	return &agentMetrics{
		routes: f.GaugeVec("routes",
			"Number of routes that this node should have, by state: standing, missing (could not be written), refused (another program's is there).", "state"),
		unreachable: f.Gauge("unreachable_peers",
			"Number of nodes whose pods can't be reached from this node."),
		tunnels: f.GaugeVec("tunnels",
			"Number of nodes to which this node has a WireGuard tunnel, or should have one, by state: connected (has shaken hands), waiting (has not), keyless (no key to use). While keys are replaced, each device counts.", "state"),
		ready: f.Gauge("ready",
			"1 while this node's network is as it should be, as /readyz reports; else 0."),
		repairs:    f.CounterVec("repairs_total", "Number of repairs of what another program had changed, by part: routes, or the name of another part of the node's network.", "part"),
		writes:     f.CounterVec("route_writes_total", "Number of changes to the kernel's table by verb (add, replace, delete) and outcome (ok, error).", "verb", "outcome"),
		passes:     f.CounterVec("passes_total", "Number of reconciliations, by outcome (ok, error).", "outcome"),
		eventsLost: f.Counter("kernel_events_lost_total", "Number of times that the subscription to the kernel's events was restarted, including the start: each causes a full reconciliation."),
	}, f.Err()
}

func (m *agentMetrics) wrote(verb string, err error) {
	m.writes.WithLabelValues(verb, outcomeOf(err)).Inc()
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
	m.unreachable.Set(float64(len(d.unreachable)))
	if !s.Tunnels.Enabled {
		return
	}
	connected, all := 0, 0
	for i, device := range s.Devices {
		for _, peer := range d.TunnelPlans[i].Peers {
			if all++; device.handshaken(peer.PublicKey) {
				connected++
			}
		}
	}
	m.tunnels.WithLabelValues("connected").Set(float64(connected))
	m.tunnels.WithLabelValues("waiting").Set(float64(all - connected))
	m.tunnels.WithLabelValues("keyless").Set(float64(len(d.TunnelPlans[0].Keyless)))
}
