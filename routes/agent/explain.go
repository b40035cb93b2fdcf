package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Line is a route, the action on it, and the reason.
type Line struct {
	Action Action
	Entry  Entry
	Node   string
	Why    string
}

// Action is the change that a pass would make to a route.
type Action string

const (
	Stands   Action = "stands"
	Adds     Action = "add"
	Replaces Action = "replace"
	Deletes  Action = "delete"
	Refuses  Action = "refused"
)

// Explain returns a line for each route of a decision, sorted by destination.
func Explain(d Decision) []Line {
	planned := map[Place]Line{}
	for _, wanted := range d.Plan.Add {
		planned[wanted.Place()] = Line{Action: Adds}
	}
	for _, c := range d.Plan.Replace {
		planned[c.New.Place()] = Line{Action: Replaces, Why: ", now via " + c.Old.Via.String()}
	}
	for _, r := range d.Plan.Refused {
		planned[r.Place()] = Line{Action: Refuses, Why: ": " + r.String()}
	}
	var lines []Line
	for _, wanted := range d.Want {
		line := Line{Action: Stands}
		if p, differs := planned[wanted.Place()]; differs {
			line = p
		}
		lines = append(lines, Line{line.Action, wanted.Entry, wanted.Node, wanted.Why + line.Why})
	}
	for _, e := range d.Plan.Delete {
		lines = append(lines, Line{Deletes, e, "", "ours, and no Node has this podCIDR at this address"})
	}
	slices.SortStableFunc(lines, func(a, b Line) int { return compareEntries(a.Entry, b.Entry) })
	return lines
}

// Cleanup deletes all our routes and proxy neighbor entries, and returns what it deleted.
func Cleanup(ctx context.Context, k Kernel) ([]string, error) {
	gone, failed := cleanupRoutes(ctx, k)
	proxies, err := k.Proxies(ctx)
	if err != nil {
		return gone, errors.Join(failed, err)
	}
	plan := diffProxies(nil, proxies, nil)
	for _, p := range plan.Delete {
		if err := k.DeleteProxy(ctx, p); err != nil {
			return gone, errors.Join(failed, fmt.Errorf("having ARP answered no longer for %s: %w", p, err))
		}
	}
	return append(gone, plan.Lines()...), failed
}

func cleanupRoutes(ctx context.Context, k Kernel) ([]string, error) {
	table, err := k.List(ctx)
	if err != nil {
		return nil, err
	}
	var gone []string
	var failed []error
	for _, e := range table {
		if !e.Ours() {
			continue
		}
		if err := k.Delete(ctx, e); err != nil {
			failed = append(failed, fmt.Errorf("deleting route %s: %w", e, err))
			continue
		}
		gone = append(gone, "route "+e.String()+" deleted")
	}
	return gone, errors.Join(failed...)
}
