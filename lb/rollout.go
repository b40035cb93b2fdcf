package lb

import (
	"cmp"
	"slices"
)

// Rollout says how targets change without a moment in which none is healthy, if that can be had. It decides
// from what the cloud says now, and nothing is remembered but since when.
//
//   - Targets that come are added while there is room.
//   - A target that goes stays while it is healthy and no target that is wanted is, until that had its time.
type Rollout struct {
	// Expected reports whether a server can be healthy: under policy Local only one with endpoints can.
	Expected func(server int64) bool
	// Overdue are targets that are there and have not been healthy for the time of a verdict.
	Overdue map[Target]bool
}

// Next returns the spec with the targets that the load balancer is to have now. waits: more is to be done
// when the next looks say what became of these.
func (r Rollout) Next(want Spec, have State) (now Spec, waits bool) {
	if !have.Exists() || !have.saysSomething() {
		return want, false
	}
	want.Targets = slices.Clone(want.Targets)
	waits = r.keepLeaving(&want, have)
	want.Public = want.Public || slices.ContainsFunc(want.Targets, func(t Target) bool { return !t.Private })
	return want, waits
}

// keepLeaving keeps healthy targets that are not wanted any more, while none that is wanted is healthy and
// one may become so. Where the type has no room for all, one of them stays, if need be in the place of one
// that would come.
func (r Rollout) keepLeaving(want *Spec, have State) bool {
	wanted, present := byServer(want.Targets), byServer(have.Targets)
	served := make(map[int]bool) // listeners that find a wanted target healthy
	pending := false
	for _, t := range want.Targets {
		for _, port := range have.HealthyAt(t.Server) {
			served[port] = true
		}
		_, ok := present[t.Server]
		pending = pending || r.Expected(t.Server) && (!ok || !have.healthy(t.Server) && !r.Overdue[t])
	}
	var leaving []Target
	for _, t := range have.Targets {
		_, stays := wanted[t.Server]
		needed := slices.ContainsFunc(have.HealthyAt(t.Server), func(port int) bool { return !served[port] })
		if !stays && needed {
			leaving = append(leaving, t)
		}
	}
	if !pending || len(leaving) == 0 {
		return false
	}
	if limits, known := LimitsOf(want.Type); known {
		room := limits.Targets - have.OtherTargets
		leaving = leaving[:min(len(leaving), max(1, room-len(want.Targets)))]
		for i := len(want.Targets) - 1; i >= 0 && len(want.Targets)+len(leaving) > room; i-- {
			if _, ok := present[want.Targets[i].Server]; !ok {
				want.Targets = slices.Delete(want.Targets, i, i+1)
			}
		}
	}
	want.Targets = append(want.Targets, leaving...)
	slices.SortFunc(want.Targets, func(a, b Target) int { return cmp.Compare(a.Server, b.Server) })
	return true
}

// saysSomething reports whether the checks of any listener say anything of a target.
func (s State) saysSomething() bool {
	return slices.ContainsFunc(s.Listeners, func(l Listener) bool { return len(s.Verdicts[l.Port]) > 0 })
}

// healthy reports whether a server's target is healthy at every listener that finds any target healthy, and
// whether there is one.
func (s State) healthy(server int64) bool {
	any := false
	for _, l := range s.Listeners {
		if s.Health(l.Port).Healthy == 0 {
			continue
		}
		if any = true; s.Verdicts[l.Port][server] != Healthy {
			return false
		}
	}
	return any
}

// Waiting are the targets that are not healthy yet, or not any more.
func (s State) Waiting() (targets []Target) {
	for _, t := range s.Targets {
		if s.saysSomething() && !s.healthy(t.Server) {
			targets = append(targets, t)
		}
	}
	return targets
}
