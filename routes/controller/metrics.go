package controller

import (
	"errors"

	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/internal/promauto"
	"github.com/underlay-ccm/underlay/routes"
)

type tableMetrics struct {
	limit, postponed, headroom, ours, ambiguous, foreign, attachments, listed *metrics.Gauge

	refused *metrics.GaugeVec
	writes  *metrics.CounterVec
}

func newTableMetrics(r promauto.Registry) (*tableMetrics, error) {
	f, writes := promauto.With(r, "route_table"), promauto.With(r, "routes")
	return &tableMetrics{
		limit: f.Gauge("limit",
			"Number of routes that the network's table takes, as configured or as the cloud said."),
		postponed: f.Gauge("postponed_deletions",
			"Number of our routes that are stale and wait for the cap on deletions."),
		headroom:    f.Gauge("headroom", "Number of routes that still fit into the table."),
		ours:        f.Gauge("ours", "Number of routes in the table that this cluster wrote or adopted."),
		ambiguous:   f.Gauge("ambiguous", "Number of routes in the table that lead to podCIDRs of this cluster's ranges and that it neither wrote nor adopted. They are kept."),
		foreign:     f.Gauge("foreign", "Number of other routes in the table, which are outside this cluster's ranges or no podCIDRs of theirs. They are kept."),
		attachments: f.Gauge("attachments", "Number of servers that are attached to the network, in this cluster or not. Load balancers count toward the cloud's limit too, dedicated servers on a vSwitch perhaps, and neither are in this number."),
		listed: f.Gauge("listed_timestamp_seconds",
			"Time at which the last complete list of the table was requested, in seconds since 1970."),
		refused: f.GaugeVec("refused",
			"Number of routes that the Nodes need and that are not written, by cause: full (the table has no room), obstructed (another program's route is in the way), outside (the podCIDR belongs to no range of this cluster).",
			"cause"),
		writes: writes.CounterVec("writes_total",
			"Number of changes sent to the network's table by verb (add, replace, delete) and outcome (ok, error).",
			"verb", "outcome"),
	}, errors.Join(f.Err(), writes.Err())
}

func (m *tableMetrics) show(d decision) {
	m.limit.Set(float64(d.Budget.Limit))
	for _, cause := range []routes.Cause{routes.Full, routes.Obstructed, routes.Outside} {
		m.refused.WithLabelValues(string(cause)).Set(float64(d.Plan.Refusals(cause)))
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
