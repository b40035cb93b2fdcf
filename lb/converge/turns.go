package converge

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/underlay-ccm/underlay/lb"
)

// Turn is about targets that are to be reached at their other address: what becomes of those that have moved decides
// about the others. The zero Turn is none.
type Turn struct {
	// Private: they move to their private addresses.
	Private bool `json:"private,omitempty"`
	// Moved are the servers of those that have; none while the first waits until all targets are judged.
	Moved []int64 `json:"moved,omitempty"`
	// Was is what there was to lose before that, by the listener's port.
	Was map[int]lb.Health `json:"was,omitempty"`
	// Until is when their health shows.
	Until time.Time `json:"until,omitzero"`
}

// Open reports whether a verdict is waited for.
func (t Turn) Open() bool { return !t.Until.IsZero() }

// judged says what those that moved have cost, nil for nothing, when that can be known. A new target may be
// unhealthy before it is healthy, so only what is good is believed at once.
func (t Turn) judged(have lb.State, now time.Time) (cost error, known bool) {
	cost = t.cost(have)
	all := have.Judged(maps.Keys(t.Was))
	switch {
	case all && cost == nil:
		return nil, true
	case now.Before(t.Until), !all && now.Before(t.Until.Add(patience)):
		return nil, false
	}
	return cost, true
}

// cost names a listener that has lost more than half of those that moved: it has that many healthy targets less, and
// that many others more. Nodes that come or go change one of the two.
func (t Turn) cost(have lb.State) error {
	listeners, some := lb.ByPort(have.Listeners), len(t.Moved)/2
	for _, port := range slices.Sorted(maps.Keys(t.Was)) {
		was, is := t.Was[port], have.Health[port]
		others := len(have.Targets) - is.Healthy
		if _, ok := listeners[port]; ok && is.Healthy < was.Healthy-some && others > was.Unhealthy+was.Unknown+some {
			return fmt.Errorf("port %d had %d healthy targets, and %d after %d had changed", port, was.Healthy, is.Healthy, len(t.Moved))
		}
	}
	return nil
}

// settled ends a turn whose verdict is known, or that nobody wants any more. Targets that fared badly are put back.
func (m Memory) settled(spec lb.Spec, have lb.State, now time.Time) (next Memory, waits bool) {
	if m.Turn.Private != spec.UsePrivateIP {
		m.Turn = Turn{}
	}
	if !m.Turn.Open() {
		return m, false
	}
	cost, known := m.Turn.judged(have, now)
	if known && cost != nil && len(m.Turn.Moved) > 0 {
		m = m.putBack(lb.AimOfTargets(spec.UsePrivateIP), m.Turn.Moved, cost, now)
	}
	return m, !known
}

// inTurns is what of the ops is done now, so that at most half of the healthy targets are out of service, and what is
// then to be judged before the rest is done. The first is alone, to find out whether targets are healthy at their
// other address at all.
func (p Plan) inTurns(ops []lb.Op, have lb.State, waits bool) ([]lb.Op, Turn) {
	turn, stakes := p.Memory.Turn, have.Stakes()
	replaces := slices.ContainsFunc(ops, func(op lb.Op) bool { _, ok := op.(lb.ReplaceTarget); return ok })
	if !waits && (!replaces || len(stakes) == 0) {
		return ops, Turn{}
	}
	most := 0
	switch {
	case waits, !turn.Open() && !have.Judged(maps.Keys(stakes)):
	case len(turn.Moved) == 0:
		most = 1
	default:
		most = len(have.Targets)
		for _, h := range stakes {
			most = min(most, max(h.Healthy/2, 1))
		}
	}
	now, moved, _ := lb.InTurns(ops, most)
	if waits {
		return now, turn
	}
	until := p.now.Add(verdict(p.Spec)).Truncate(time.Second)
	return now, Turn{Private: p.Spec.UsePrivateIP, Moved: moved, Was: stakes, Until: until}
}
