package agent

import (
	"context"
	"net/netip"
	"slices"

	"k8s.io/klog/v2"
)

// interest filters the kernel's events: a machine's pods are created and deleted with routes,
// links and addresses that don't matter here.
type interest struct {
	wanted  []Entry        // sorted
	refused map[Place]bool // wanted entries with another program's route in place
	uplinks map[int]bool
	names   []string     // of configured uplinks and WireGuard devices
	own     []netip.Addr // addresses of this machine's Node
	peers   []peer       // in the order of wanted routes, those of the most urgent Nodes first
	answers map[Proxy]bool
}

// peer is the next hop of a route, and its interface.
type peer struct {
	addr netip.Addr
	link int
}

func newInterest(d Decision, s Settings) *interest {
	i := &interest{
		wanted: make([]Entry, len(d.Want)), refused: make(map[Place]bool, len(d.Plan.Refused)),
		uplinks: map[int]bool{},
		names:   append(slices.Concat(s.Uplinks, d.View.Tunnels), TunnelLink(s.Tunnels.Port)),
		own:     d.Node.InternalIPs,
		peers:   make([]peer, 0, len(d.Want)), answers: make(map[Proxy]bool, len(d.Answers)),
	}
	for _, p := range d.Answers {
		i.answers[p] = true
	}
	for _, r := range d.Plan.Refused {
		i.refused[r.Place()] = true
	}
	for at, wanted := range d.Want {
		i.wanted[at] = wanted.Entry
		if wanted.Node != "" && wanted.Via.IsValid() {
			i.peers = append(i.peers, peer{wanted.Via, wanted.Link})
		}
	}
	i.peers = slices.Compact(i.peers) // the routes to one Node are consecutive
	slices.SortFunc(i.wanted, compareEntries)
	for _, l := range d.uplinks {
		i.uplinks[l.Index] = true
	}
	return i
}

// wants reports whether exactly this entry is wanted; a nil interest wants no entry.
func (i *interest) wants(e Entry) bool {
	if i == nil || i.refused[e.Place()] {
		return false
	}
	_, found := slices.BinarySearchFunc(i.wanted, e, compareEntries)
	return found
}

// leadsTo reports whether an entry for the destination is wanted, refused or not.
func (i *interest) leadsTo(dst netip.Prefix) bool {
	_, found := slices.BinarySearchFunc(i.wanted, dst, func(e Entry, dst netip.Prefix) int {
		return e.Dst.Compare(dst)
	})
	return found
}

// happened handles an event of the kernel. Our own writes have no effect: they are wanted.
func (a *Agent) happened(ctx context.Context, e Event) {
	want := a.interest.Load()
	switch {
	case e.Kind == EventsLost:
		a.metrics.eventsLost.Inc()
		a.passInFull()
	case want == nil: // before the first pass
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
			// A wanted route exists, or an unwanted one was deleted: nothing to do.
			return (e.Kind == RouteSet) != i.wants(e.Route)
		}
		return i.leadsTo(e.Route.Dst) || i.uplinks[e.Route.Link] || e.Route.Dst.Bits() == 0 ||
			len(i.uplinks) == 0
	case LinkChanged:
		return i.uplinks[e.Link] || slices.Contains(i.names, e.Name)
	case AddressChanged:
		return i.uplinks[e.Link] || slices.Contains(i.own, e.Addr)
	default:
		return true
	}
}

// repair restores a route that another program deleted. It needs no list, because Add never
// overwrites. If a concurrent pass has decided otherwise, another pass is triggered.
func (a *Agent) repair(ctx context.Context, e Entry) {
	err := a.Kernel.Add(ctx, []Entry{e})[0]
	a.metrics.wrote("add", err)
	if err == nil {
		a.metrics.repairs.WithLabelValues("routes").Inc()
		klog.FromContext(ctx).Info("Route restored that another program had deleted", "route", e)
	}
	// With an error, a pass has restored it already, or the interface or its address is missing too.
	if err != nil || !a.interest.Load().wants(e) {
		a.queue.Add(pass)
	}
}
