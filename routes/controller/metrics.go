package controller

import (
	"fmt"

	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/routes"
)

// Registry registers metrics. The registries of component-base implement it.
type Registry interface {
	Register(metrics.Registerable) error
}

type tableMetrics struct {
	limit, reserve, wanted, postponed, headroom   *metrics.Gauge
	ours, ambiguous, foreign, attachments, listed *metrics.Gauge
	refused                                       *metrics.GaugeVec
	writes                                        *metrics.CounterVec
}

func newTableMetrics(r Registry) (*tableMetrics, error) {
	gauge := func(name, help string) *metrics.Gauge {
		return metrics.NewGauge(&metrics.GaugeOpts{Namespace: "underlay", Subsystem: "route_table", Name: name, Help: help})
	}
	m := &tableMetrics{
		limit:       gauge("limit", "Number of routes that the network's table takes, as configured or as the cloud said."),
		reserve:     gauge("reserve", "Number of routes of the limit that are left to others."),
		wanted:      gauge("wanted", "Number of routes that the Nodes need."),
		postponed:   gauge("postponed_deletions", "Number of our routes that are stale and wait for the cap on deletions."),
		headroom:    gauge("headroom", "Number of routes that still fit into the table."),
		ours:        gauge("ours", "Number of routes in the table that this cluster wrote or adopted."),
		ambiguous:   gauge("ambiguous", "Number of routes in the table that lead to podCIDRs of this cluster's ranges and that it neither wrote nor adopted. They are kept."),
		foreign:     gauge("foreign", "Number of other routes in the table, which are outside this cluster's ranges or no podCIDRs of theirs. They are kept."),
		attachments: gauge("attachments", "Number of servers that are attached to the network, in this cluster or not. Load balancers count toward the cloud's limit too, dedicated servers on a vSwitch perhaps, and neither are in this number."),
		listed:      gauge("listed_timestamp_seconds", "Time at which the last complete list of the table was requested, in seconds since 1970."),
		refused: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Namespace: "underlay", Subsystem: "route_table", Name: "refused",
			Help: "Number of routes that the Nodes need and that are not written, by cause: full (the table has no room), obstructed (another program's route is in the way), outside (the podCIDR belongs to no range of this cluster).",
		}, []string{"cause"}),
		writes: metrics.NewCounterVec(&metrics.CounterOpts{
			Namespace: "underlay", Subsystem: "routes", Name: "writes_total",
			Help: "Number of changes sent to the network's table by verb (add, replace, delete) and outcome (ok, error).",
		}, []string{"verb", "outcome"}),
	}
	for _, metric := range []metrics.Registerable{
		m.limit, m.reserve, m.wanted, m.refused, m.postponed, m.headroom,
		m.ours, m.ambiguous, m.foreign, m.attachments, m.listed, m.writes,
	} {
		if err := r.Register(metric); err != nil {
			return nil, fmt.Errorf("registering the route metrics: %w", err)
		}
	}
	return m, nil
}

func (m *tableMetrics) show(d decision) {
	m.limit.Set(float64(d.Budget.Limit))
	m.reserve.Set(float64(d.Budget.Reserve))
	m.wanted.Set(float64(len(d.Wanted.Routes)))
	refused := map[routes.Cause]int{}
	for _, r := range d.Plan.Refused {
		refused[r.Cause]++
	}
	for cause, name := range map[routes.Cause]string{routes.Full: "full", routes.Obstructed: "obstructed", routes.Outside: "outside"} {
		m.refused.WithLabelValues(name).Set(float64(refused[cause]))
	}
	m.postponed.Set(float64(len(d.Plan.Postponed)))
	m.headroom.Set(float64(d.Budget.Room(d.Ownership.Total())))
	m.ours.Set(float64(len(d.Ownership.Ours)))
	m.ambiguous.Set(float64(len(d.Ownership.Ambiguous)))
	m.foreign.Set(float64(len(d.Ownership.Foreign)))
	m.attachments.Set(float64(d.Gateways.Attached))
}

func (m *tableMetrics) wrote(s routes.Step, err error) {
	outcome := "ok"
	if err != nil {
		outcome = "error"
	}
	m.writes.WithLabelValues(string(s.Verb), outcome).Inc()
}
