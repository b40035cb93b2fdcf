// Package state is what the demo knows of the cluster and its cloud: a snapshot
// of both, the facts that can be read off it, when each became true, and what is
// still missing from what a step wants.
//
// It decides and does nothing else. Observers hand in what they saw; the clock is
// an argument. It must never be told that something is true before it was
// observed: a demo that is kind to its program shows nothing.
package state

import (
	"net/netip"
	"slices"
)

// Layout is what was set up before the first machine joined.
type Layout struct {
	// Pods are the ranges that podCIDRs come from.
	Pods []netip.Prefix
	// RouteLimit is how many routes the cloud's network takes.
	RouteLimit int
}

// State is a snapshot of the cluster and of the cloud.
type State struct {
	Layout

	Nodes    map[string]Node
	Services map[string]Service
	Cloud    Cloud

	// Requests are those that the cloud got, Writes those that the API server
	// got for each Node.
	Requests []RequestCount
	Writes   []WriteCount

	// Whoever held a podCIDR or a server is remembered: what is left behind in
	// the cloud has to be told by its owner's name.
	holders map[netip.Prefix]string
	renters map[int64]string
}

// New is a State with nothing in it.
func New(l Layout) *State {
	return &State{
		Layout: l, Nodes: map[string]Node{}, Services: map[string]Service{},
		holders: map[netip.Prefix]string{}, renters: map[int64]string{},
	}
}

// SetNode notes a Node as it is now.
func (w *State) SetNode(n Node) {
	w.Nodes[n.Name] = n
	for _, p := range n.PodCIDRs {
		w.holders[p] = n.Name
	}
}

// RemoveNode notes that a Node is gone.
func (w *State) RemoveNode(name string) { delete(w.Nodes, name) }

// SetService notes a Service as it is now.
func (w *State) SetService(s Service) { w.Services[s.Name] = s }

// RemoveService notes that a Service is gone.
func (w *State) RemoveService(name string) { delete(w.Services, name) }

// SetCloud notes the cloud as it is now.
func (w *State) SetCloud(c Cloud) {
	w.Cloud = c
	for _, s := range c.Servers {
		w.renters[s.ID] = s.Name
	}
}

// Budget is how a network's routes are used.
type Budget struct{ Limit, Ours, Foreign int }

// Free is how many routes the network still takes.
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

// toPods reports whether a route leads to pods; anything else is not Underlay's.
func (w *State) toPods(r Route) bool {
	return slices.ContainsFunc(w.Pods, func(p netip.Prefix) bool {
		return p.Bits() <= r.Dst.Bits() && p.Contains(r.Dst.Addr())
	})
}

// RouteOf is the route that leads to a Node's pods through its own server.
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
