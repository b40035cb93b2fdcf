// Package state holds the demo's view of the cluster and its cloud: a snapshot of both, the facts
// that follow from it, when each became true, and what is still missing from a step's expected
// state.
//
// It decides and does nothing else. Observers pass their observations; the clock is an argument. A
// fact must never be set before it was observed: a demo that favors its program shows nothing.
package state

import (
	"net/netip"
	"slices"
)

// Layout is the configuration before the first machine joined.
type Layout struct {
	// Pods are the ranges of podCIDRs.
	Pods []netip.Prefix
	// RouteLimit is the maximum number of routes of the cloud's network.
	RouteLimit int
}

// State is a snapshot of the cluster and of the cloud.
type State struct {
	Layout

	Nodes    map[string]Node
	Services map[string]Service
	Cloud    Cloud

	// Requests are those that the cloud received, Writes those that the API server received for
	// each Node.
	Requests []RequestCount
	Writes   []WriteCount

	// Former owners of podCIDRs and servers are kept, because resources that remain in the cloud
	// are shown with their owner's name.
	holders map[netip.Prefix]string
	renters map[int64]string
}

// New returns an empty State.
func New(l Layout) *State {
	return &State{
		Layout: l, Nodes: map[string]Node{}, Services: map[string]Service{},
		holders: map[netip.Prefix]string{}, renters: map[int64]string{},
	}
}

// SetNode records the current state of a Node.
func (w *State) SetNode(n Node) {
	w.Nodes[n.Name] = n
	for _, p := range n.PodCIDRs {
		w.holders[p] = n.Name
	}
}

// RemoveNode records that a Node was deleted.
func (w *State) RemoveNode(name string) { delete(w.Nodes, name) }

// SetService records the current state of a Service.
func (w *State) SetService(s Service) { w.Services[s.Name] = s }

// RemoveService records that a Service was deleted.
func (w *State) RemoveService(name string) { delete(w.Services, name) }

// SetCloud records the current state of the cloud.
func (w *State) SetCloud(c Cloud) {
	w.Cloud = c
	for _, s := range c.Servers {
		w.renters[s.ID] = s.Name
	}
}

// Budget is the use of a network's routes.
type Budget struct{ Limit, Ours, Foreign int }

// Free is how many routes can still be added to the network.
func (b Budget) Free() int { return b.Limit - b.Ours - b.Foreign }

// Budget counts the network's routes.
func (w *State) Budget() Budget {
	b := Budget{Limit: w.RouteLimit}
	for _, r := range w.Cloud.Routes {
		if w.toPods(r) {
			b.Ours++
		} else {
			b.Foreign++
		}
	}
	return b
}

// toPods reports whether a route's destination is in the pods' ranges; other routes are not
// Underlay's.
func (w *State) toPods(r Route) bool {
	return slices.ContainsFunc(w.Pods, func(p netip.Prefix) bool {
		return p.Bits() <= r.Dst.Bits() && p.Contains(r.Dst.Addr())
	})
}

// RouteOf returns the route to a Node's pods through its own server.
func (w *State) RouteOf(n Node) (Route, bool) {
	server, ok := w.Cloud.server(n.Name)
	if !ok {
		return Route{}, false
	}
	for _, r := range w.Cloud.Routes {
		if r.Via == server.PrivateIP && slices.Contains(n.PodCIDRs, r.Dst) {
			return r, true
		}
	}
	return Route{}, false
}
