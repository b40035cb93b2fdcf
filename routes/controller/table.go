package controller

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/underlay-ccm/underlay/routes"
)

// State is the last complete list of the table, for components that must not hand out routed
// prefixes. A controller publishes it, so its readers don't depend on the controller. The zero
// State has no list. It is safe for concurrent use.
type State struct{ last atomic.Pointer[listedTable] }

type listedTable struct {
	requested, expires time.Time
	// destinations are those of all routes but a default route, which routes to no pods. They
	// include routes that we may have added since, and those that we deleted.
	destinations []netip.Prefix
}

// knownPeriods is the number of periods for which a list is valid.
const knownPeriods = 2

// Destinations returns those of all routes in the list but a default route, and whether there is
// a list of the last two periods.
func (s *State) Destinations() (destinations []netip.Prefix, known bool) {
	return s.since(time.Time{})
}

// Routed reports whether the table has a route that overlaps the prefix, by a list requested at
// since or later. known is false without such a list, or if it is too old for Destinations.
func (s *State) Routed(p netip.Prefix, since time.Time) (routed, known bool) {
	destinations, known := s.since(since)
	return slices.ContainsFunc(destinations, p.Overlaps), known
}

func (s *State) since(since time.Time) (destinations []netip.Prefix, known bool) {
	last := s.last.Load()
	if last == nil || last.requested.Before(since) || time.Now().After(last.expires) {
		return nil, false
	}
	return last.destinations, true
}

func (s *State) listed(table []routes.Route, requested time.Time, period time.Duration) {
	last := &listedTable{requested: requested, expires: requested.Add(knownPeriods * period)}
	for _, r := range table {
		if r.Dst.Bits() > 0 {
			last.destinations = append(last.destinations, r.Dst)
		}
	}
	s.last.Store(last)
}

// adding includes a route before it is requested, because it may exist from then on.
func (s *State) adding(r routes.Route) {
	last := *s.last.Load() // no route is added without a list
	last.destinations = append(slices.Clip(last.destinations), r.Dst)
	s.last.Store(&last)
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
	maps.DeleteFunc(c.unsettled, func(_ netip.Prefix, end time.Time) bool {
		return !requested.Before(end)
	})
	c.record.listed(c.table, requested)
	c.State.listed(c.table, requested, c.Period)
	c.metrics.listed.Set(float64(requested.Unix()))
	return nil
}

func (c *Controller) write(ctx context.Context, s routes.Step, by time.Time) error {
	switch s.Verb {
	case routes.Delete:
		return c.Table.Delete(ctx, s.Old, by)
	case routes.Replace:
		return c.Table.Replace(ctx, s.Old, s.New.Route, by)
	default:
		c.State.adding(s.New.Route)
		return c.Table.Add(ctx, s.New.Route)
	}
}
