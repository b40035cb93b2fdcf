package state

import (
	"cmp"
	"maps"
	"slices"
)

// View is a Service with its load balancer.
type View struct {
	Service  Service
	Balancer Balancer
	Targets  []NamedTarget // by name
}

// NamedTarget is a target with its machine's name.
type NamedTarget struct{ Name, Health string }

// Views are all Services with their load balancers in the cloud, by name.
func (w *State) Views() []View {
	var views []View
	for _, s := range w.sortedServices() {
		v := View{Service: s}
		v.Balancer, _ = w.Cloud.balancerOf(s)
		for _, t := range v.Balancer.Targets {
			v.Targets = append(v.Targets, NamedTarget{Name: w.renter(t.Server), Health: t.Health})
		}
		slices.SortFunc(v.Targets, func(a, b NamedTarget) int { return cmp.Compare(a.Name, b.Name) })
		views = append(views, v)
	}
	return views
}

// SortedNodes are the Nodes by name.
func (w *State) SortedNodes() []Node {
	return slices.SortedFunc(maps.Values(w.Nodes), func(a, b Node) int {
		return cmp.Compare(a.Name, b.Name)
	})
}

func (w *State) sortedServices() []Service {
	return slices.SortedFunc(maps.Values(w.Services), func(a, b Service) int {
		return cmp.Compare(a.Name, b.Name)
	})
}
