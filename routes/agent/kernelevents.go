package agent

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"k8s.io/klog/v2"
)

// interest is what the kernel's events are judged by: a machine's pods come and
// go with routes, links and addresses of their own, which are none of ours.
type interest struct {
	wanted  []Entry        // sorted
	refused map[Place]bool // those of wanted for which somebody else's stands
	uplinks map[int]bool
	names   []string     // of configured uplinks
	own     []netip.Addr // of this machine's Node
	peers   []peer       // as of wanted routes, those of the most urgent Nodes first
	answers map[Proxy]bool
}

// peer is a neighbor that a route leads to, and the interface.
type peer struct {
	addr netip.Addr
	link int
}

func newInterest(d Decision, s Situation) *interest {
	i := &interest{
		wanted: make([]Entry, len(d.Want)), refused: make(map[Place]bool, len(d.Plan.Refused)),
		uplinks: map[int]bool{}, names: s.Uplinks,
		peers: make([]peer, 0, len(d.Want)), answers: make(map[Proxy]bool, len(d.Answers)),
	}
	for _, p := range d.Answers {
		i.answers[p] = true
	}
	for _, r := range d.Plan.Refused {
		i.refused[r.Place()] = true
	}
	for at, wanted := range d.Want {
		i.wanted[at] = wanted.Entry
		if wanted.Node != "" {
			i.peers = append(i.peers, peer{wanted.Via, wanted.Link})
		}
	}
	i.peers = slices.Compact(i.peers) // the routes to one Node are in a row
	slices.SortFunc(i.wanted, compareEntries)
	for _, l := range s.Links {
		if slices.Contains(d.View.Uplinks, l.Name) {
			i.uplinks[l.Index] = true
		}
	}
	for _, n := range s.Nodes {
		if n.Name == s.Self {
			i.own = n.InternalIPs
		}
	}
	return i
}

// wants reports whether exactly this entry is wanted; a nil interest wants nothing.
func (i *interest) wants(e Entry) bool {
	if i == nil || i.refused[e.Place()] {
		return false
	}
	_, found := slices.BinarySearchFunc(i.wanted, e, compareEntries)
	return found
}

// leadsTo reports whether an entry to the destination is wanted, refused or not.
func (i *interest) leadsTo(dst netip.Prefix) bool {
	_, found := slices.BinarySearchFunc(i.wanted, dst, func(e Entry, dst netip.Prefix) int { return e.Dst.Compare(dst) })
	return found
}

// happened judges an event of the kernel. Our own writes come back as events,
// too, and lead to nothing because they are what is wanted.
func (a *Agent) happened(ctx context.Context, e Event) {
	want := a.interest.Load()
	switch {
	case e.Kind == EventsLost:
		a.metrics.eventsLost.Inc()
		a.passInFull()
	case want == nil: // the first pass is still to come
		a.queue.Add(pass)
	case e.Kind == RouteGone && e.Route.Ours() && want.wants(e.Route):
		a.repair(ctx, e.Route)
	case want.concerned(e):
		a.queue.Add(pass)
	}
}

// concerned reports whether an event can change a decision.
func (i *interest) concerned(e Event) bool {
	switch e.Kind {
	case RouteSet, RouteGone:
		if e.Route.Ours() {
			// One that is wanted stands, one that isn't has gone: as it should be.
			return (e.Kind == RouteSet) != i.wants(e.Route)
		}
		return i.leadsTo(e.Route.Dst) || i.uplinks[e.Route.Link] || e.Route.Dst.Bits() == 0 || len(i.uplinks) == 0
	case LinkChanged:
		return i.uplinks[e.Link] || slices.Contains(i.names, e.Name)
	case AddressChanged:
		return i.uplinks[e.Link] || slices.Contains(i.own, e.Addr)
	default:
		return true
	}
}

// repair puts a route back that somebody deleted. It needs no look: Add never
// overwrites. A pass that decided otherwise meanwhile is repeated.
func (a *Agent) repair(ctx context.Context, e Entry) {
	began := time.Now()
	err := a.Kernel.Add(ctx, e)
	a.metrics.wrote("add", err)
	if err != nil {
		// A place that is taken again was most likely taken by a pass. Otherwise
		// the interface or its address may be gone too.
		if !errors.Is(err, ErrTaken) {
			klog.FromContext(ctx).V(2).Info("Route can't be put back as it was", "route", e, "err", err)
		}
		a.queue.Add(pass)
		return
	}
	a.metrics.repairSeconds.Observe(time.Since(began).Seconds())
	a.metrics.repairs.WithLabelValues("routes").Inc()
	klog.FromContext(ctx).Info("Route put back that somebody had deleted", "route", e)
	if !a.interest.Load().wants(e) {
		a.queue.Add(pass)
	}
}
