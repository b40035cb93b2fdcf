package converge

import (
	"fmt"
	"slices"
	"time"

	"github.com/underlay-ccm/underlay/lb"
)

// Turn is about targets that are to be reached at their other address, some after the others: what becomes of those
// that have moved decides about the rest. The zero Turn is none.
type Turn struct {
	// Private: they move to their private addresses.
	Private bool `json:"private,omitempty"`
	// Moved are the servers that are looked at, with the ports of the listeners that found them healthy before; none
	// while the first waits until all targets are judged, or, if all are unhealthy, had time to become healthy.
	Moved map[int64][]int `json:"moved,omitempty"`
	// Proved: one that moved was found healthy.
	Proved bool `json:"proved,omitempty"`
	// Until is when the health of those that moved shows.
	Until time.Time `json:"until,omitzero"`
	// Refused says why no other moves any more, until somebody has that tried again; Back are the servers that
	// are reached as before. Then all else is zero but Private.
	Refused string  `json:"refused,omitempty"`
	Back    []int64 `json:"back,omitempty"`
}

// Open reports whether a verdict is waited for.
func (t Turn) Open() bool { return !t.Until.IsZero() }

// briefly is what targets have at least to become healthy, however short their checks.
const briefly = 30 * time.Second

// wished is the turn that is about what a spec asks for.
func (t Turn) wished(spec lb.Spec) Turn {
	if t.Private != spec.UsePrivateIP {
		return Turn{}
	}
	return t
}

// settled is a turn after a look at those that have moved, and whether a verdict is still waited for.
func (p Plan) settled(t Turn, spec lb.Spec, have lb.State, trial Checks) (next Turn, waits bool) {
	if t.Refused != "" {
		return t, false
	}
	if trial.Open() && have.Exists() { // the checks are what is looked at now
		if until := trial.Until.Add(untilHealthy(spec)); !t.Open() || trial.Trial != p.Memory.Trial && until.After(t.Until) {
			t.Private, t.Until = spec.UsePrivateIP, until
		}
		if p.now.Before(t.Until.Add(patience)) {
			return t, true
		}
	}
	if !t.Open() {
		return t, false
	}
	moved := p.looked(t, spec, have)
	if len(moved) == 0 && len(t.Moved) > 0 && !t.Proved { // nobody has answered yet
		t.Until = p.now.Add(untilHealthy(spec)).Truncate(time.Second)
	}
	t.Moved = moved
	lost, sure := t.lost(have)
	early, late := p.now.Before(t.Until), !p.now.Before(t.Until.Add(patience))
	switch {
	case len(lost) > 0 && (early || !sure && !late):
		return t, true
	case len(lost) > 0:
		return t.refused(have, lost), false
	case len(t.Moved) > 0:
		t.Proved = true
		return t, false
	case t.Proved:
		return t, early && !have.Judged()
	}
	return t, !late && !have.Judged() || early && have.Dead()
}

// untilHealthy is what it takes targets that have moved to be found healthy.
func untilHealthy(spec lb.Spec) time.Duration { return max(verdict(spec), briefly) }

// looked are those of the servers that moved which say something: they are not where they were, and still to answer, and
// not everybody that asked them is gone.
func (p Plan) looked(t Turn, spec lb.Spec, have lb.State) map[int64][]int {
	looked, listeners := make(map[int64][]int), lb.ByPort(have.Listeners)
	for server, ports := range t.Moved {
		ports = slices.DeleteFunc(slices.Clone(ports), func(port int) bool { return listeners[port] == (lb.Listener{}) })
		stays := p.aimless || slices.ContainsFunc(spec.Targets, func(w lb.Target) bool { return w.Server == server })
		back := slices.Contains(have.Targets, lb.Target{Server: server, Private: !t.Private})
		if len(ports) > 0 && stays && !back && (!p.follows || slices.Contains(p.preferred, server)) {
			looked[server] = ports
		}
	}
	return looked
}

// lost are the servers, sorted, that a listener found healthy before they moved and does not now. That is not sure while
// none is found unhealthy, or those that have not moved are so too.
func (t Turn) lost(have lb.State) (servers []int64, sure bool) {
	for server, ports := range t.Moved {
		lost := false
		for _, port := range ports {
			verdict := have.Verdicts[port][server]
			lost = lost || verdict != lb.Healthy
			sure = sure || verdict == lb.Unhealthy && (have.Health(port).Healthy > 0 || len(t.Moved) >= len(have.Targets))
		}
		if lost {
			servers = append(servers, server)
		}
	}
	slices.Sort(servers)
	return servers, sure
}

// refused is the end of turns: those that were lost go back, and with them all that nobody finds healthy where they are
// wanted. Others that have moved are as good as before.
func (t Turn) refused(have lb.State, lost []int64) Turn {
	why := fmt.Sprintf("server %d was healthy before, and is not there", lost[0])
	if others := len(lost) - 1; others > 0 {
		why = fmt.Sprintf("server %d and %d more were healthy before, and are not there", lost[0], others)
	}
	back := lost
	for _, target := range have.Targets {
		if target.Private == t.Private && len(have.HealthyAt(target.Server)) == 0 {
			back = append(back, target.Server)
		}
	}
	slices.Sort(back)
	return Turn{Private: t.Private, Refused: why, Back: slices.Compact(back)}
}

func (t Turn) note() lb.Note {
	return lb.Note{
		Grade: lb.Error, Reason: lb.ReasonTargetsRolledBack,
		Text: fmt.Sprintf("cannot %s (%s): targets that are not healthy there are reached as before, and no other changes; let nodes answer there, at their node ports and health checks, then remove the annotation %s to have it tried again", lb.AimOfTargets(t.Private), t.Refused, lb.AnnotationState),
	}
}

// inTurns is what of the ops is done now, so that at most half of the healthy targets are out of service, and what is
// then looked at. The first to move is alone, to find out whether targets are healthy at their other address at all;
// those that nobody finds healthy have nothing to lose, and nothing to prove, and go with the next.
func (p Plan) inTurns(ops []lb.Op, have lb.State, t Turn, waits bool) ([]lb.Op, Turn) {
	replaced := lb.Replaced(ops)
	next := Turn{Private: p.Spec.UsePrivateIP, Proved: t.Proved, Until: p.now.Add(untilHealthy(p.Spec)).Truncate(time.Second)}
	switch {
	case len(replaced) == 0 && (!waits || len(t.Moved) == 0 && !t.Proved):
		return ops, Turn{}
	case waits:
		return lb.InTurns(ops, nil), t
	case slices.ContainsFunc(lb.InTurns(ops, nil), lb.NeedsLook): // what has to be there first may be refused
		return lb.InTurns(ops, nil), Turn{}
	case !t.Open() && (!have.Judged() || have.Dead()): // they may yet be healthy
		return lb.InTurns(ops, nil), next
	}
	next.Moved = make(map[int64][]int)
	var moving []int64
	for most := p.most(t, have); len(replaced) > 0; replaced = replaced[1:] {
		ports := have.HealthyAt(replaced[0])
		switch {
		case len(ports) > 0 && len(next.Moved) < most:
			next.Moved[replaced[0]] = ports
		case len(ports) > 0 || !t.Proved:
			continue
		}
		moving = append(moving, replaced[0])
	}
	if len(next.Moved) == 0 {
		return ops, Turn{}
	}
	return lb.InTurns(ops, moving), next
}

// most is how many healthy targets a turn takes out of service: half of those of the listener that has the fewest.
func (p Plan) most(t Turn, have lb.State) int {
	most := 1
	if t.Proved {
		most = len(have.Targets)
		for port := range have.Verdicts {
			if healthy := have.Health(port).Healthy; healthy > 0 {
				most = min(most, max(healthy/2, 1))
			}
		}
	}
	return most
}

// heldTurn ends a turn of a Service that is refused: whatever it asks for now, targets that were lost are not to stay so
// until somebody has corrected it.
func (p Plan) heldTurn(have lb.State, trial Checks) (t Turn, ops []lb.Op, notes []lb.Note) {
	if t = p.Memory.Turn; len(t.Moved) > 0 {
		var waits bool
		if t, waits = p.settled(t, p.Spec, have, trial); waits {
			return t, nil, nil
		}
	}
	if t.Refused == "" {
		return Turn{}, nil, nil
	}
	back := lb.AimOfTargets(!t.Private)
	for _, target := range have.Targets {
		lost := target.Private == t.Private && slices.Contains(t.Back, target.Server)
		if lost && slices.Contains(p.servers, target.Server) && !p.now.Before(p.Memory.GivenUp[back].Until) {
			ops = append(ops, lb.ReplaceTarget{Old: target, New: lb.Target{Server: target.Server, Private: !t.Private}})
		}
	}
	return t, ops, []lb.Note{t.note()}
}
