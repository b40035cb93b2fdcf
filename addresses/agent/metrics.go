package agent

import (
	"k8s.io/component-base/metrics"
)

// Registry registers metrics. The registries of component-base implement it.
type Registry interface {
	Register(metrics.Registerable) error
}

type agentMetrics struct {
	held, refused *metrics.GaugeVec
	announcements *metrics.CounterVec
	conflicts     *metrics.CounterVec
	routersDown   *metrics.Gauge
	silent        *metrics.Gauge
	doubt         *metrics.Gauge
	reports       *metrics.CounterVec
}

func newMetrics(r Registry) (*agentMetrics, error) {
	gauge := func(name, help string) *metrics.GaugeOpts {
		return &metrics.GaugeOpts{Namespace: "underlay", Subsystem: "agent_address", Name: name, Help: help}
	}
	counter := func(name, help string) *metrics.CounterOpts {
		return &metrics.CounterOpts{Namespace: "underlay", Subsystem: "agent_address", Name: name, Help: help}
	}
	m := &agentMetrics{
		held: metrics.NewGaugeVec(gauge("held",
			"Addresses that this node holds, by mover, which is what brings their traffic to it."), []string{"mover"}),
		refused: metrics.NewGaugeVec(gauge("problems",
			"Addresses that this node should hold, or could, and does not, by reason."), []string{"reason"}),
		announcements: metrics.NewCounterVec(counter("announcements_total",
			"Announcements that this node holds an address, by mover."), []string{"mover"}),
		conflicts: metrics.NewCounterVec(counter("conflicts_total",
			"Times that another machine claimed an address that this node is to hold, by mover."), []string{"mover"}),
		routersDown: metrics.NewGauge(gauge("routers_down",
			"BGP peers that this node should speak with, and does not.")),
		silent: metrics.NewGauge(gauge("silent_peers",
			"Ports of other nodes that this node watches and that do not report that they serve.")),
		doubt: metrics.NewGauge(gauge("doubt",
			"1 while this node can't read the ledger of addresses and continues with the state it read last; else 0.")),
		reports: metrics.NewCounterVec(counter("reports_total",
			"Writes of this node's report on addresses, by result (success, error)."), []string{"result"}),
	}
	all := []metrics.Registerable{
		m.held, m.refused, m.announcements, m.conflicts, m.routersDown, m.silent, m.doubt, m.reports,
	}
	for _, one := range all {
		if err := r.Register(one); err != nil {
			return nil, err
		}
	}
	return m, nil
}
