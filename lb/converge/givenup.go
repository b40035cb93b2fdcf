package converge

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/underlay-ccm/underlay/lb"
)

// retryGivenUp is when an aim that the cloud refused is tried again. Finding out takes a target, or all of
// them, out of service for a moment.
const retryGivenUp = time.Hour

// giveUp returns the memory with an aim that the cloud refused.
func (m Memory) giveUp(aim string, why error, now time.Time) Memory {
	m.GivenUp = maps.Clone(m.GivenUp)
	if m.GivenUp == nil {
		m.GivenUp = make(map[string]GivenUp)
	}
	m.GivenUp[aim] = GivenUp{Why: why.Error(), Until: now.Add(retryGivenUp).Truncate(time.Second)}
	return m
}

// givenUp fits a spec to what was refused: by the cloud not long ago, or by the nodes. Aims that nobody has any more are
// forgotten.
func (p Plan) givenUp(spec lb.Spec, have lb.State, turn Turn) (lb.Spec, map[string]GivenUp, []lb.Note) {
	left := make(map[string]GivenUp)
	refused := func(aim string) bool {
		given, ok := p.Memory.GivenUp[aim]
		if ok = ok && p.now.Before(given.Until); ok {
			left[aim] = given
		}
		return ok
	}
	var notes []lb.Note
	fit := spec.GiveUp(have, refused)
	if turn.Refused != "" {
		fit, notes = fit.Stay(have), append(notes, turn.note())
		fit.Public = fit.Public || turn.Private && have.Public // for what is to be put back
		if !refused(lb.AimOfTargets(!turn.Private)) {
			fit = fit.PutBack(turn.Back)
		}
	}
	for _, aim := range slices.Sorted(maps.Keys(left)) {
		notes = append(notes, lb.Note{
			Grade: lb.Error, Reason: ReasonRejected,
			Text: fmt.Sprintf("cannot %s (%s): it is left as it was; this is tried again within an hour, or when the annotation %s is removed", aim, left[aim].Why, lb.AnnotationState),
		})
	}
	if len(left) == 0 {
		left = nil
	}
	return fit, left, notes
}
