package lb

import (
	"fmt"
	"slices"
)

// Rollout changes targets so that, if possible, at least one target is healthy at any time. It
// depends only on the current health and since when targets have been unhealthy.
//
//   - New targets are added while there is room.
//   - A removed target is kept while it is healthy and no wanted target is, for at most the time
//     of a verdict.
//   - Targets that change their address are replaced one at a time, the next only while all
//     targets at the wanted address are healthy.
type Rollout struct {
	// Expected reports whether a target can be healthy: under policy Local only on a node with
	// endpoints.
	Expected func(Target) bool
	// Possible reports whether a target can be healthy at any listener of the sharing Services.
	Possible func(Target) bool
	// Overdue are targets that have not been healthy for the time of a verdict.
	Overdue map[Target]bool
}

// Next returns the spec with the current step's targets. waits reports whether further steps
// follow after the next health checks. A note names the target that blocks the rollout until it
// recovers or a user acts.
func (r Rollout) Next(want Spec, have State) (now Spec, waits bool, notes []Note) {
	if !have.Exists() || !have.hasHealth() {
		return want, false, nil
	}
	want.Targets = slices.Clone(want.Targets)
	waits, notes = r.replace(&want, have)
	if r.keepLeaving(&want, have) {
		waits = true
	}
	slices.SortFunc(want.Targets, Target.Compare)
	// Targets that are still reached through the public interface need it.
	want.Public = want.Public ||
		slices.ContainsFunc(want.Targets, func(t Target) bool { return !t.Private })
	return want, waits, notes
}

// replace keeps the current addresses of targets, except for those that are replaced now.
func (r Rollout) replace(want *Spec, have State) (waits bool, notes []Note) {
	now, _ := want.match(have.Targets)
	addressed := want.addressed()
	// others are indexes of want.Targets that are reached at their other address, serving those
	// that are healthy there.
	var others, serving []int
	var failing []Target
	early, proved := false, false
	for i, t := range want.Targets {
		old, ok := now[t]
		switch {
		case !ok, !addressed[t]: // a target that cannot change its address does not count
		case old == t && have.healthy(t):
			proved = true
		case old == t:
			if r.Expected(t) {
				failing = append(failing, t)
			}
		default:
			others = append(others, i)
			if len(have.HealthyAt(old)) > 0 {
				serving = append(serving, i)
			} else {
				early = early || r.Expected(t) && !r.Overdue[old] // it may still become healthy
			}
		}
	}
	stuck := slices.ContainsFunc(failing, func(t Target) bool { return r.Overdue[t] })
	if len(others) == 0 {
		return false, nil
	}
	var move []int
	switch {
	case stuck && proved: // a target that is not healthy loses nothing
		move = slices.DeleteFunc(slices.Clone(others), func(i int) bool {
			return slices.Contains(serving, i)
		})
	case len(failing) > 0, early:
	case len(serving) > 0:
		move = serving[:1]
	default:
		move = others
	}
	for _, i := range others {
		if !slices.Contains(move, i) {
			want.Targets[i] = now[want.Targets[i]]
		}
	}
	if stuck && len(move) < len(others) {
		return false, []Note{notReplaced(want.UsePrivateIP, failing)}
	}
	return true, nil
}

// keepLeaving keeps healthy targets that are no longer wanted while no wanted target is healthy
// and one may become so. It keeps as many as there is room for, but at least one, if necessary
// instead of another target: of one that can't become healthy, else of a new one.
func (r Rollout) keepLeaving(want *Spec, have State) bool {
	now, going := want.match(have.Targets)
	served := make(map[int]bool) // with a healthy wanted target
	pending := false
	for _, t := range want.Targets {
		old, ok := now[t]
		for _, port := range have.HealthyAt(old) {
			served[port] = true
		}
		pending = pending || r.Possible(t) && (!ok || !have.healthy(old) && !r.Overdue[t])
	}
	var leaving []Target
	for _, t := range going {
		if t.Pod() != want.PodTargets {
			continue // Step handles it
		}
		if slices.ContainsFunc(have.HealthyAt(t), func(port int) bool { return !served[port] }) {
			leaving = append(leaving, t)
		}
	}
	if !pending || len(leaving) == 0 {
		return false
	}
	room := LimitsOf(want.Type).Targets - have.OtherTargets
	leaving = leaving[:min(len(leaving), max(1, room-len(want.Targets)))]
	useless := func(t Target) bool { return !r.Possible(t) && len(have.HealthyAt(now[t])) == 0 }
	drop := func(may func(t Target, present bool) bool) {
		for i := len(want.Targets) - 1; i >= 0 && len(want.Targets)+len(leaving) > room; i-- {
			if _, present := now[want.Targets[i]]; may(want.Targets[i], present) {
				want.Targets = slices.Delete(want.Targets, i, i+1)
			}
		}
	}
	drop(func(t Target, present bool) bool { return !present && useless(t) }) // else they alternate
	drop(func(t Target, _ bool) bool { return useless(t) })
	drop(func(_ Target, present bool) bool { return !present })
	want.Targets = append(want.Targets, leaving...)
	return true
}

func notReplaced(private bool, failing []Target) Note {
	names := make([]string, len(failing))
	for i, t := range failing {
		names[i] = t.name()
	}
	return Note{
		Grade: Error, Reason: ReasonTargetsNotReplaced, Figures: andMore(names),
		Text: fmt.Sprintf("a target that is reached at its %s is not healthy there, so no other is changed: let nodes serve there, at their node ports and health checks, or change %s back", addressesOf(private), annotationPrivateIP),
	}
}

func addressesOf(private bool) string {
	if private {
		return "private addresses"
	}
	return "public addresses"
}

// hasHealth reports whether the health checks of any listener have results.
func (s State) hasHealth() bool {
	return slices.ContainsFunc(s.Listeners, func(l Listener) bool {
		return len(s.Verdicts[l.Port]) > 0
	})
}

// healthy reports whether a target is healthy at every listener with a healthy target, of which
// there must be at least one.
func (s State) healthy(t Target) bool {
	any := false
	for _, l := range s.Listeners {
		if s.Health(l.Port).Healthy == 0 {
			continue
		}
		if any = true; s.Verdicts[l.Port][t] != Healthy {
			return false
		}
	}
	return any
}

// Waiting returns the targets that are not healthy.
func (s State) Waiting() (targets []Target) {
	for _, t := range s.Targets {
		if s.hasHealth() && !s.healthy(t) {
			targets = append(targets, t)
		}
	}
	return targets
}
