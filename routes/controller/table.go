package controller

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/underlay-ccm/underlay/routes"
)

// listedTable is what the last complete list of the table showed, and what we may
// have added since. A route that we deleted is in it until a list misses it.
type listedTable struct {
	asked  time.Time // when the list was asked for
	routes []routes.Route
}

// lastList is written by the goroutine that runs passes and read by anybody.
type lastList struct{ last atomic.Pointer[listedTable] }

func (l *lastList) listed(table []routes.Route, asked time.Time) {
	l.last.Store(&listedTable{asked, slices.Clone(table)})
}

// adding notes a route before it is asked for: from then on it may stand.
func (l *lastList) adding(r routes.Route) {
	if last := l.last.Load(); last != nil {
		l.last.Store(&listedTable{last.asked, append(slices.Clone(last.routes), r)})
	}
}

// destinations are those of all routes, without a default route, which leads to no
// pods. They are known if the list was asked for since then.
func (l *lastList) destinations(since time.Time) (found []netip.Prefix, known bool) {
	last := l.last.Load()
	if last == nil || last.asked.Before(since) {
		return nil, false
	}
	for _, r := range last.routes {
		if r.Dst.Bits() > 0 {
			found = append(found, r.Dst)
		}
	}
	return found, true
}

// knownPeriods is for how many periods a list counts as knowledge of the table.
const knownPeriods = 2

// Destinations are those of all routes in the table, as the last complete list
// showed it, without a default route, which leads to no pods. Without a list of
// the last two periods nothing is known. It is safe for concurrent use.
func (c *Controller) Destinations() (destinations []netip.Prefix, known bool) {
	return c.lastList.destinations(time.Now().Add(-knownPeriods * c.Period))
}

// Routed reports whether the table holds a route that overlaps the prefix, by a list
// that was asked for at since or later. Without one, or with one that is too old for
// Destinations, nothing is known. It is safe for concurrent use.
func (c *Controller) Routed(p netip.Prefix, since time.Time) (routed, known bool) {
	if oldest := time.Now().Add(-knownPeriods * c.Period); since.Before(oldest) {
		since = oldest
	}
	destinations, known := c.lastList.destinations(since)
	return slices.ContainsFunc(destinations, p.Overlaps), known
}

// list lists the table. Without a successful list there is no table to decide on.
func (c *Controller) list(ctx context.Context) error {
	asked := time.Now()
	table, err := c.Table.List(ctx)
	if err != nil {
		c.table = nil
		return fmt.Errorf("listing the network's routes: %w", err)
	}
	c.learned.listed(len(table))
	c.table, c.asked = append([]routes.Route{}, table...), asked
	clear(c.written)
	c.record.listed(c.table, asked)
	c.lastList.listed(c.table, asked)
	c.metrics.listed.Set(float64(asked.Unix()))
	return nil
}

func (c *Controller) write(ctx context.Context, s routes.Step, by time.Time) error {
	if s.Verb != routes.Delete {
		c.lastList.adding(s.New)
	}
	switch s.Verb {
	case routes.Delete:
		return c.Table.Delete(ctx, s.Old, by)
	case routes.Replace:
		return c.Table.Replace(ctx, s.Old, s.New, by)
	default:
		return c.Table.Add(ctx, s.New)
	}
}
