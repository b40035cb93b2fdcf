package state

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Want is the expected state of the cluster after a step.
type Want struct {
	// Machines are the members of the cluster; there must be no others.
	Machines []string
	// Service has a load balancer with all machines as healthy targets; empty: there is no Service
	// yet.
	Service string
	// Foreign is a foreign route that must remain.
	Foreign Route
	// Books: the cloud rejected no request, and IPAM and routes together wrote to no Node more than
	// MostWrites times.
	Books bool
}

// MostWrites is the number of writes until a Node is reachable: its podCIDRs, and its condition
// True, then False.
const MostWrites = 3

// Missing lists all differences from the expected state; nothing: the step has succeeded.
func (w *State) Missing(t *Timeline, want Want) []string {
	facts := w.Facts()
	var missing []string
	for _, m := range want.Machines {
		missing = append(missing, w.missingOf(m, facts, t)...)
	}
	if want.Service != "" {
		missing = append(missing, missingService(want, facts)...)
	}
	for _, f := range facts {
		if f.Machine != "" && !slices.Contains(want.Machines, f.Machine) {
			missing = append(missing, fmt.Sprintf("%s: %s must go", f.Subject, f.What))
		}
	}
	if want.Foreign.Dst.IsValid() && !slices.Contains(w.Cloud.Routes, want.Foreign) {
		missing = append(missing, fmt.Sprintf("the route %s via %s, which is somebody else's", want.Foreign.Dst, want.Foreign.Via))
	}
	missing = append(missing, w.overlaps()...)
	if want.Books {
		missing = append(missing, w.misconduct(want.Machines)...)
	}
	return missing
}

// missingOf is one line with everything that a machine lacks, and its actual state.
func (w *State) missingOf(machine string, facts []Fact, t *Timeline) []string {
	var lacks []string
	for _, what := range Milestones() {
		if what == Unavailable { // it is over by the time the rest is there
			if _, ok := t.Reached(machine, what); !ok {
				lacks = append(lacks, what+" at first")
			}
			continue
		}
		if !holds(facts, machine, what) {
			lacks = append(lacks, what)
		}
	}
	if len(lacks) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s: %s (%s)", machine, strings.Join(lacks, ", "), w.describe(machine))}
}

func (w *State) describe(machine string) string {
	n, ok := w.Nodes[machine]
	if !ok {
		return "there is no such Node"
	}
	return fmt.Sprintf("podCIDRs %v, provider ID %q, NetworkUnavailable %q %s, Ready %q %s, taints: %s",
		n.PodCIDRs, n.ProviderID, n.Unavailable.Status, n.Unavailable.Message, n.Ready.Status, n.Ready.Message, cmp.Or(n.taints(), "none"))
}

func missingService(want Want, facts []Fact) []string {
	needs := []string{Created, Balanced, Listens, HealthCheck, Address}
	for _, m := range want.Machines {
		needs = append(needs, targetIs(m), healthyIs(m))
	}
	var lacks []string
	for _, what := range needs {
		if !holds(facts, want.Service, what) {
			lacks = append(lacks, what)
		}
	}
	if len(lacks) == 0 {
		return nil
	}
	return []string{want.Service + ": " + strings.Join(lacks, ", ")}
}

// overlaps are podCIDRs of different Nodes that share addresses.
func (w *State) overlaps() []string {
	type claim struct {
		node   string
		prefix netip.Prefix
	}
	var claims []claim
	var found []string
	for _, n := range w.SortedNodes() {
		for _, p := range n.PodCIDRs {
			for _, c := range claims {
				if c.node != n.Name && c.prefix.Overlaps(p) {
					found = append(found, fmt.Sprintf("podCIDRs that do not overlap (%s of %s, %s of %s)", c.prefix, c.node, p, n.Name))
				}
			}
			claims = append(claims, claim{n.Name, p})
		}
	}
	return found
}

// misconduct lists unexpected entries of the logs.
func (w *State) misconduct(machines []string) []string {
	var found []string
	for _, r := range w.Requests {
		if r.Refused > 0 {
			found = append(found, fmt.Sprintf("no refused request (%d of %s %s)", r.Refused, r.Method, r.Path))
		}
	}
	for _, m := range machines {
		i := slices.IndexFunc(w.Writes, func(c WriteCount) bool { return c.Node == m })
		switch {
		case i < 0:
			found = append(found, fmt.Sprintf("writes to %s in the audit log", m))
		case w.Writes[i].Sum() > MostWrites:
			found = append(found, fmt.Sprintf("at most %d writes to %s by IPAM and routes (%d)", MostWrites, m, w.Writes[i].Sum()))
		}
	}
	return found
}

func holds(facts []Fact, subject, what string) bool {
	return slices.ContainsFunc(facts, func(f Fact) bool {
		return f.Subject == subject && f.What == what
	})
}
