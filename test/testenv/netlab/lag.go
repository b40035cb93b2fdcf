//go:build linux

package netlab

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim"
)

// lag delays the effect of changes of a route table, each by a delay of its own; with a negative
// delay, a route takes effect before the action that adds it ends.
type lag struct {
	delay func() time.Duration
	// changed is called when the routes in effect change after a delay.
	changed func()

	mu       sync.Mutex
	reported map[hcloudsim.RouteSeed]bool
	works    map[hcloudsim.RouteSeed]bool
	latest   map[hcloudsim.RouteSeed]int // the number of the last change in effect
	count    int
}

func newLag(delay func() time.Duration, changed func()) *lag {
	return &lag{
		delay: delay, changed: changed,
		reported: map[hcloudsim.RouteSeed]bool{}, works: map[hcloudsim.RouteSeed]bool{},
		latest: map[hcloudsim.RouteSeed]int{},
	}
}

// follow receives the table, and the additions by actions that still run.
func (g *lag) follow(table []hcloudsim.RouteSeed, building []hcloudsim.PlaneBuilding) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	ends := map[hcloudsim.RouteSeed]time.Time{}
	for _, r := range table {
		ends[r] = now
	}
	for _, b := range building {
		ends[b.RouteSeed] = b.Ends
	}
	for r := range g.reported {
		if _, stays := ends[r]; !stays {
			delete(g.reported, r)
			g.schedule(r, false, 0)
		}
	}
	for r, end := range ends {
		if !g.reported[r] {
			g.reported[r] = true
			g.schedule(r, true, end.Sub(now))
		}
	}
}

// schedule puts a change of a route into effect after its delay, counted from the end of its
// action, which is later from now.
func (g *lag) schedule(r hcloudsim.RouteSeed, there bool, later time.Duration) {
	g.count++
	number, delay := g.count, later+g.delay()
	if delay <= 0 {
		g.take(r, number, there)
		return
	}
	time.AfterFunc(delay, func() {
		g.mu.Lock()
		took := g.take(r, number, there)
		g.mu.Unlock()
		if took {
			g.changed()
		}
	})
}

// take puts a change into effect, unless a later one of the same route already is.
func (g *lag) take(r hcloudsim.RouteSeed, number int, there bool) bool {
	if number < g.latest[r] {
		return false
	}
	g.latest[r] = number
	if there {
		g.works[r] = true
	} else {
		delete(g.works, r)
	}
	return true
}

// routes returns the routes in effect, the newest last.
func (g *lag) routes() []hcloudsim.RouteSeed {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.SortedFunc(maps.Keys(g.works), func(a, b hcloudsim.RouteSeed) int {
		return cmp.Compare(g.latest[a], g.latest[b])
	})
}
