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

// sighting is what the last complete list of the table showed, and what we may
// have added since. A route that we deleted is in it until a list misses it.
type sighting struct {
	asked  time.Time // when the list was asked for
	routes []routes.Route
}

// sightings are written by the goroutine that runs passes and read by anybody.
type sightings struct{ last atomic.Pointer[sighting] }

func (s *sightings) listed(table []routes.Route, asked time.Time) {
	s.last.Store(&sighting{asked, slices.Clone(table)})
}

// adding notes a route before it is asked for: from then on it may stand.
func (s *sightings) adding(r routes.Route) {
	if last := s.last.Load(); last != nil {
		s.last.Store(&sighting{last.asked, append(slices.Clone(last.routes), r)})
	}
}

func (s *sightings) overlapping(p netip.Prefix, since time.Time) (overlaps, known bool) {
	last := s.last.Load()
	if last == nil || last.asked.Before(since) {
		return false, false
	}
	return slices.ContainsFunc(last.routes, func(r routes.Route) bool { return r.Dst.Bits() > 0 && r.Dst.Overlaps(p) }), true
}

// sightPeriods is for how many periods a list counts as knowledge of the table.
const sightPeriods = 2

// Routed says whether the table holds a route that overlaps the prefix, as the
// last complete list showed it; a default route leads to no pods. Without a list
// of the last two periods nothing is known. It is safe for concurrent use.
func (c *Controller) Routed(p netip.Prefix) (routed, known bool) {
	return c.sightings.overlapping(p, time.Now().Add(-sightPeriods*c.Period))
}

// Destinations are those of all routes in the table, as the last complete list
// showed it, without a default route, which leads to no pods. Without a list of
// the last two periods nothing is known. It is safe for concurrent use.
func (c *Controller) Destinations() (destinations []netip.Prefix, known bool) {
	last := c.sightings.last.Load()
	if last == nil || last.asked.Before(time.Now().Add(-sightPeriods*c.Period)) {
		return nil, false
	}
	for _, r := range last.routes {
		if r.Dst.Bits() > 0 {
			destinations = append(destinations, r.Dst)
		}
	}
	return destinations, true
}

// list looks at the table. Without a successful look there is no table to
// decide on.
func (c *Controller) list(ctx context.Context) error {
	asked := time.Now()
	table, err := c.Table.List(ctx)
	if err != nil {
		c.table = nil
		return fmt.Errorf("listing the network's routes: %w", err)
	}
	c.latch.listed(len(table))
	c.table, c.asked = append([]routes.Route{}, table...), asked
	clear(c.written)
	c.record.listed(c.table, asked)
	c.sightings.listed(c.table, asked)
	c.metrics.listed.Set(float64(asked.Unix()))
	return nil
}

func (c *Controller) write(ctx context.Context, s routes.Step) error {
	if s.Verb != routes.Delete {
		c.sightings.adding(s.New)
	}
	switch s.Verb {
	case routes.Delete:
		return c.Table.Delete(ctx, s.Old, c.deadline())
	case routes.Replace:
		return c.Table.Replace(ctx, s.Old, s.New, c.deadline())
	default:
		return c.Table.Add(ctx, s.New)
	}
}
