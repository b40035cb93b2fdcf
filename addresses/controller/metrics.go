package controller

import (
	"net/netip"
	"strings"

	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/internal/promauto"
)

type controllerMetrics struct {
	size, used                      *metrics.GaugeVec
	waiting, inUse, unheld, damaged *metrics.Gauge
	moves, unrouted                 *metrics.CounterVec
	conflicts                       *metrics.Counter
}

func newMetrics(r promauto.Registry) (*controllerMetrics, error) {
	f := promauto.With(r, "addresses")
	return &controllerMetrics{
		size: f.GaugeVec("pool_size", "Number of addresses of the pool by family (ipv4, ipv6).",
			"pool", "family"),
		used: f.GaugeVec("pool_used",
			"Number of addresses of the pool that Services have, by family (ipv4, ipv6).", "pool", "family"),
		waiting: f.Gauge("services_waiting", "Number of Services that do not have all the addresses that they request; the condition underlay.dev/Accepted of each has the reason."),
		inUse:   f.Gauge("in_use", "Number of addresses of Services for which, as nodes report, another machine than their holder replies."),
		unheld: f.Gauge("unheld",
			"Number of addresses of Services that no node may hold, so that no machine may reply for them."),
		damaged: f.Gauge("ledger_damaged", "1 while the stored ledger of addresses cannot be read: no address is given and none moves; else 0."),
		moves: f.CounterVec("moves_total", "Number of changes of the node that holds an address by reason: why the previous node may not hold it, or assigned, released, balanced (spread while nothing else changes).",
			"reason"),
		unrouted:  f.CounterVec("routing_failures_total", "Number of times that an API failed to route an address to its node, or to list the routes of addresses, by mover; each is retried.", "mover"),
		conflicts: f.Counter("ledger_conflicts_total", "Number of writes of the stored ledger of addresses that were refused because another process or a person had changed it; it is read again then."),
	}, f.Err()
}

func (c *Controller) show(p plan) {
	type place struct {
		pool   string
		family addresses.Family
	}
	used := make(map[place]int)
	inUse, unheld := make(map[netip.Addr]bool), 0
	for _, e := range p.ledger.Entries() {
		if len(e.Shares) == 0 {
			continue
		}
		if pool, known := poolOf(p.pools, e.Address); known {
			used[place{pool.Name, addresses.FamilyOf(e.Address)}]++
		}
		if p.unheld(e) != "" {
			unheld++
		}
	}
	for _, m := range p.fleet.members {
		for _, problem := range m.report.Refused {
			if e, _ := p.ledger.Entry(problem.Address); len(e.Shares) > 0 &&
				problem.Reason == addresses.InUse {
				inUse[e.Address] = true
			}
		}
	}
	for _, pool := range p.pools {
		for _, f := range []addresses.Family{addresses.IPv4, addresses.IPv6} {
			if size, family := pool.Size(f), strings.ToLower(f.String()); size > 0 {
				c.metrics.size.WithLabelValues(pool.Name, family).Set(float64(size))
				c.metrics.used.WithLabelValues(pool.Name, family).Set(float64(used[place{pool.Name, f}]))
			}
		}
	}
	c.metrics.inUse.Set(float64(len(inUse)))
	c.metrics.unheld.Set(float64(unheld))
	waiting := 0
	for uid, a := range p.request {
		if len(a.notes)+len(p.refusals[string(uid)]) > 0 {
			waiting++
		}
	}
	c.metrics.waiting.Set(float64(waiting))
}
