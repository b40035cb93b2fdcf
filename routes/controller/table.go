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

// listedTable is the last complete list of the table, with routes that we may have added
// since. A route that we deleted remains until it is missing in a list.
type listedTable struct {
	requested time.Time // when the list was requested
	routes    []routes.Route
}

// lastList is written by the goroutine that runs passes. It may be read concurrently.
type lastList struct{ last atomic.Pointer[listedTable] }

func (l *lastList) listed(table []routes.Route, requested time.Time) {
	l.last.Store(&listedTable{requested, slices.Clone(table)})
}

// adding adds a route before it is requested, because it may exist from then on.
func (l *lastList) adding(r routes.Route) {
	if last := l.last.Load(); last != nil {
		l.last.Store(&listedTable{last.requested, append(slices.Clone(last.routes), r)})
	}
}

// destinations returns those of all routes but a default route, which routes to no pods. It
// reports false without a list requested at since or later.
func (l *lastList) destinations(since time.Time) (found []netip.Prefix, known bool) {
	last := l.last.Load()
	if last == nil || last.requested.Before(since) {
		return nil, false
	}
	for _, r := range last.routes {
		if r.Dst.Bits() > 0 {
			found = append(found, r.Dst)
		}
	}
	return found, true
}

// knownPeriods is the number of periods for which a list is valid.
const knownPeriods = 2

// Destinations returns those of all routes in the last complete list of the table, but a
// default route, and whether it is of the last two periods. It is safe for concurrent use.
func (c *Controller) Destinations() (destinations []netip.Prefix, known bool) {
	return c.lastList.destinations(time.Now().Add(-knownPeriods * c.Period))
}

// Routed reports whether the table has a route that overlaps the prefix, by a list requested
// at since or later. known is false without such a list, or if it is too old for Destinations.
// It is safe for concurrent use.
func (c *Controller) Routed(p netip.Prefix, since time.Time) (routed, known bool) {
	if oldest := time.Now().Add(-knownPeriods * c.Period); since.Before(oldest) {
		since = oldest
	}
	destinations, known := c.lastList.destinations(since)
	return slices.ContainsFunc(destinations, p.Overlaps), known
}

// list lists the table. On an error, decisions lack a table until the next list.
func (c *Controller) list(ctx context.Context) error {
	requested := time.Now()
	table, err := c.Table.List(ctx)
	if err != nil {
		c.table = nil
		return fmt.Errorf("listing the network's routes: %w", err)
	}
	c.learned.listed(len(table))
	c.table, c.requested = append([]routes.Route{}, table...), requested
	clear(c.written)
	c.record.listed(c.table, requested)
	c.lastList.listed(c.table, requested)
	c.metrics.listed.Set(float64(requested.Unix()))
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
