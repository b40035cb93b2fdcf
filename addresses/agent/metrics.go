package agent

import (
	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/internal/promauto"
)

type agentMetrics struct {
	held               *metrics.GaugeVec
	routersDown, doubt *metrics.Gauge
}

func newMetrics(r promauto.Registry) (*agentMetrics, error) {
	f := promauto.With(r, "agent_address")
	return &agentMetrics{
		held: f.GaugeVec("held",
			"Addresses that this node holds, by mover, which is what brings their traffic to it.", "mover"),
		routersDown: f.Gauge("routers_down",
			"BGP peers that this node should speak with, and does not."),
		doubt: f.Gauge("doubt",
			"1 while this node can't read the ledger of addresses and continues with the state it read last; else 0."),
	}, f.Err()
}
