package agent

import (
	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/internal/promauto"
)

type agentMetrics struct {
	held, refused *metrics.GaugeVec
	announcements *metrics.CounterVec
	conflicts     *metrics.CounterVec
	routersDown   *metrics.Gauge
	silent        *metrics.Gauge
	doubt         *metrics.Gauge
	reports       *metrics.CounterVec
}

func newMetrics(r promauto.Registry) (*agentMetrics, error) {
	f := promauto.With(r, "agent_address")
	return &agentMetrics{
		held: f.GaugeVec("held",
			"Addresses that this node holds, by mover, which is what brings their traffic to it.", "mover"),
		refused: f.GaugeVec("problems",
			"Addresses that this node should hold, or could, and does not, by reason.", "reason"),
		announcements: f.CounterVec("announcements_total",
			"Announcements that this node holds an address, by mover.", "mover"),
		conflicts: f.CounterVec("conflicts_total",
			"Times that another machine claimed an address that this node is to hold, by mover.", "mover"),
		routersDown: f.Gauge("routers_down",
			"BGP peers that this node should speak with, and does not."),
		silent: f.Gauge("silent_peers",
			"Ports of other nodes that this node watches and that do not report that they serve."),
		doubt: f.Gauge("doubt",
			"1 while this node can't read the ledger of addresses and continues with the state it read last; else 0."),
		reports: f.CounterVec("reports_total",
			"Writes of this node's report on addresses, by result (success, error).", "result"),
	}, f.Err()
}
