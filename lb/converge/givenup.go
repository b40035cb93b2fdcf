package converge

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/underlay-ccm/underlay/lb"
)

const (
	// retryGivenUp is when an aim that the cloud refused is tried again. Finding out takes a target, or all of
	// them, out of service for a moment.
	retryGivenUp = time.Hour
	// retryPutBack is when one is that the nodes refused: finding out takes a minute.
	retryPutBack = 24 * time.Hour
)

// giveUp returns the memory with an aim that the cloud refused.
func (m Memory) giveUp(aim string, why error, now time.Time) Memory {
	return m.givingUp(aim, GivenUp{Why: why.Error(), Until: now.Add(retryGivenUp).Truncate(time.Second)})
}

// putBack returns the memory with an aim that the nodes refused, in place of the turn that found out.
func (m Memory) putBack(aim string, servers []int64, why error, now time.Time) Memory {
	m.Turn = Turn{}
	return m.givingUp(aim, GivenUp{Why: why.Error(), Until: now.Add(retryPutBack).Truncate(time.Second), Back: servers})
}

func (m Memory) givingUp(aim string, g GivenUp) Memory {
	m.GivenUp = maps.Clone(m.GivenUp)
	if m.GivenUp == nil {
		m.GivenUp = make(map[string]GivenUp)
	}
	m.GivenUp[aim] = g
	return m
}

// givenUp fits a spec to what was refused not long ago. Aims that nobody has any more are forgotten.
func (p Plan) givenUp(spec lb.Spec, have lb.State) (lb.Spec, map[string]GivenUp, []lb.Note) {
	left := make(map[string]GivenUp)
	refused := func(aim string) bool {
		given, ok := p.Memory.GivenUp[aim]
		if ok = ok && p.now.Before(given.Until); ok {
			left[aim] = given
		}
		return ok
	}
	fit := spec.GiveUp(have, refused)
	// Targets that are to be put back are where they were wanted.
	if aim := lb.AimOfTargets(spec.UsePrivateIP); len(p.Memory.GivenUp[aim].Back) > 0 && refused(aim) {
		fit = fit.PutBack(left[aim].Back)
	}
	var notes []lb.Note
	for _, aim := range slices.Sorted(maps.Keys(left)) {
		notes = append(notes, left[aim].note(aim))
	}
	if len(left) == 0 {
		left = nil
	}
	return fit, left, notes
}

func (g GivenUp) note(aim string) lb.Note {
	if len(g.Back) > 0 {
		return lb.Note{
			Grade: lb.Error, Reason: lb.ReasonTargetsRolledBack,
			Text: fmt.Sprintf("cannot %s (%s): those are back where they were, and the others stay; let nodes answer there, at their node ports and health checks, then remove the annotation %s to have it tried again, or wait a day", aim, g.Why, lb.AnnotationState),
		}
	}
	return lb.Note{
		Grade: lb.Error, Reason: ReasonRejected,
		Text: fmt.Sprintf("cannot %s (%s): it is left as it was; this is tried again within an hour, or when the annotation %s is removed", aim, g.Why, lb.AnnotationState),
	}
}
