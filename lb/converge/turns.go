package converge

import (
	"slices"
	"time"

	"github.com/underlay-ccm/underlay/lb"
)

// inTurns is what of the ops is done now, and until when the targets that are replaced then, or were before, have
// time to become healthy; zero if nothing is left.
func (p Plan) inTurns(ops []lb.Op, have lb.State) ([]lb.Op, time.Time) {
	until := p.Memory.Turn
	now, left := lb.InTurns(ops, have, !until.IsZero() && !p.now.Before(until))
	replaces := slices.ContainsFunc(now, func(op lb.Op) bool { _, ok := op.(lb.ReplaceTarget); return ok })
	switch {
	case !left:
		return now, time.Time{}
	case replaces, until.IsZero():
		until = p.now.Add(verdict(p.Spec) + patience).Truncate(time.Second)
	}
	return now, until
}
