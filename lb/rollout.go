package lb

import (
	"fmt"
	"slices"
)

// Rollout says how targets change without a moment in which none is healthy, if that can be had. It
// decides from what the cloud says now, and nothing is remembered but since when.
//
//   - Targets that come are added while there is room.
//   - A target that goes stays while it is healthy and no target that is wanted is, until that had
//     its time.
//   - Of targets that are to be reached at their other address one is replaced at a time, and the
//     next only while all that are reached as is wanted are healthy.
type Rollout struct {
	// Expected reports whether a target can be healthy: under policy Local only a node with
	// endpoints can.
	Expected func(Target) bool
	// Possible reports whether a target can be healthy at some listener at least, where those of
	// several Services differ.
	Possible func(Target) bool
	// Overdue are targets that are there and have not been healthy for the time of a verdict.
	Overdue map[Target]bool
}

// Next returns the spec with the targets that the load balancer is to have now. waits: more is to
// be done when the next looks say what became of these. The note says what stands in the way until
// a person acts or a target heals.
func (r Rollout) Next(want Spec, have State) (now Spec, waits bool, notes []Note) {
	if !have.Exists() || !have.saysSomething() {
		return want, false, nil
	}
	want.Targets = slices.Clone(want.Targets)
	waits, notes = r.replace(&want, have)
	if r.keepLeaving(&want, have) {
		waits = true
	}
	slices.SortFunc(want.Targets, Target.Compare)
	// What is still reached through the public interface needs it.
	want.Public = want.Public || slices.ContainsFunc(want.Targets, func(t Target) bool { return !t.Private })
	return want, waits, notes
}

// replace puts the addresses that targets have in the place of those that are wanted, but for what
// is replaced now.
func (r Rollout) replace(want *Spec, have State) (waits bool, notes []Note) {
	now, _ := want.match(have.Targets)
	addressed := want.addressed()
	var others, serving []int // targets of want that are reached at their other address; and are healthy there
	var failing []Target
	early, proved := false, false
	for i, t := range want.Targets {
		old, ok := now[t]
		switch {
		case !ok, !addressed[t]: // one that stays for want of another address says nothing of the others
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
				early = early || r.Expected(t) && !r.Overdue[old] // it may yet be healthy
			}
		}
	}
	stuck := slices.ContainsFunc(failing, func(t Target) bool { return r.Overdue[t] })
	if len(others) == 0 {
		return false, nil
	}
	var move []int
	switch {
	case stuck && proved: // those that nobody finds healthy lose nothing where others are healthy
		move = slices.DeleteFunc(slices.Clone(others), func(i int) bool { return slices.Contains(serving, i) })
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

// keepLeaving keeps healthy targets that are not wanted any more, while none that is wanted is
// healthy and one may become so. Where the type has no room for all, one of them stays, if need be
// in the place of one that would come.
func (r Rollout) keepLeaving(want *Spec, have State) bool {
	now, going := want.match(have.Targets)
	served := make(map[int]bool) // listeners that find a wanted target healthy
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
			continue // see Step
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
	for i := len(want.Targets) - 1; i >= 0 && len(want.Targets)+len(leaving) > room; i-- {
		if _, ok := now[want.Targets[i]]; !ok {
			want.Targets = slices.Delete(want.Targets, i, i+1)
		}
	}
	want.Targets = append(want.Targets, leaving...)
	return true
}

// notReplaced says why no other target is replaced.
func notReplaced(private bool, failing []Target) Note {
	names := make([]string, len(failing))
	for i, t := range failing {
		names[i] = t.name()
	}
	return Note{
		Grade: Error, Reason: ReasonTargetsNotReplaced, Figures: andMore(names),
		Text: fmt.Sprintf("a target that is reached at its %s is not healthy there, so no other is changed: let nodes answer there, at their node ports and health checks, or change %s back", addressesOf(private), annotationPrivateIP),
	}
}

// addressesOf names the addresses at which targets are reached.
func addressesOf(private bool) string {
	if private {
		return "private addresses"
	}
	return "public addresses"
}

// saysSomething reports whether the checks of any listener say anything of a target.
func (s State) saysSomething() bool {
	return slices.ContainsFunc(s.Listeners, func(l Listener) bool { return len(s.Verdicts[l.Port]) > 0 })
}

// healthy reports whether a target is healthy at every listener that finds any target healthy, and
// whether there is one.
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

// Waiting are the targets that are not healthy yet, or not any more.
func (s State) Waiting() (targets []Target) {
	for _, t := range s.Targets {
		if s.saysSomething() && !s.healthy(t) {
			targets = append(targets, t)
		}
	}
	return targets
}
