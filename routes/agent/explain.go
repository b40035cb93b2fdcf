package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
)

// Line is a route and what a pass would do to it: "add", "replace" or "delete" it; an existing one
// "stands", and one in the way of another program's is "refused".
type Line struct {
	Action string
	WantedEntry
}

// Explain returns a line for each route of a decision, sorted by destination.
func Explain(d Decision) []Line {
	actions, why := map[Place]string{}, map[Place]string{}
	for _, wanted := range d.Plan.Add {
		actions[wanted.Place()] = "add"
	}
	for _, c := range d.Plan.Replace {
		actions[c.Place()], why[c.Place()] = "replace", ", now via "+c.With.Via.String()
	}
	for _, c := range d.Plan.Refused {
		actions[c.Place()], why[c.Place()] = "refused", ": "+c.refusal()
	}
	var lines []Line
	for _, wanted := range d.Want {
		wanted.Why += why[wanted.Place()]
		lines = append(lines, Line{cmp.Or(actions[wanted.Place()], "stands"), wanted})
	}
	const unwanted = "ours, and no Node has this podCIDR at this address"
	for _, e := range d.Plan.Delete {
		lines = append(lines, Line{"delete", WantedEntry{e, "", unwanted}})
	}
	slices.SortStableFunc(lines, func(a, b Line) int { return compareEntries(a.Entry, b.Entry) })
	return lines
}

// Cleanup deletes all our routes and proxy neighbor entries, and returns what it deleted.
func Cleanup(ctx context.Context, k Kernel) (deleted []string, err error) {
	table, err := k.List(ctx)
	failed := []error{err}
	for _, e := range table {
		if !e.Ours() {
			continue
		}
		if err := k.Delete(ctx, e); err != nil {
			failed = append(failed, fmt.Errorf("deleting route %s: %w", e, err))
			continue
		}
		deleted = append(deleted, "route "+e.String()+" deleted")
	}
	proxies, err := k.Proxies(ctx)
	failed = append(failed, err)
	plan := diffProxies(nil, proxies, nil)
	for _, p := range plan.Delete {
		if err := k.DeleteProxy(ctx, p); err != nil {
			err = fmt.Errorf("having ARP answered no longer for %s: %w", p, err)
			return deleted, errors.Join(append(failed, err)...)
		}
	}
	return append(deleted, plan.Lines()...), errors.Join(failed...)
}
