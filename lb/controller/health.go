package controller

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/underlay-ccm/underlay/lb"
)

// targetsHealth returns notes about listeners without a healthy target for the time of a verdict,
// and schedules a check of listeners that are new or for which that time has not passed.
func (c *Controller) targetsHealth(
	svc *corev1.Service, spec lb.Spec, have lb.State, idle bool, opened []int,
) (notes []lb.Note) {
	wanted, present := lb.ByPort(spec.Listeners), lb.ByPort(have.Listeners)
	changed := func(l lb.Listener) bool {
		want, ok := wanted[l.Port]
		return ok && want.Check != l.Check
	}
	found, message := have.Unserved(), statusMessage(svc)
	var ports []int // a changed check starts a new period
	for _, l := range found {
		if !changed(l) {
			ports = append(ports, l.Port)
		}
	}
	ports = append(ports, opened...) // a new listener starts a new period
	since := c.unserved.look(string(svc.UID), ports, time.Now())
	var next time.Duration
	for _, l := range found {
		began, known := since[l.Port]
		left := time.Until(began.Add(l.Check.Verdict()))
		switch {
		case !known:
			next = sooner(next, l.Check.Verdict())
		case left <= 0, l.ReportsUnserved(message):
			notes = append(notes, have.NoHealthyTarget(l, idle))
		default:
			next = sooner(next, left)
		}
	}
	for _, l := range spec.Listeners {
		if _, open := present[l.Port]; !open || slices.Contains(opened, l.Port) {
			next = sooner(next, l.Check.Verdict())
		}
	}
	if next > 0 {
		c.recheck(c.keyOf(svc), next)
	}
	return notes
}

// announceHealed emits an Event for each healthy listener that the condition still reports as
// unserved.
func (c *Controller) announceHealed(svc *corev1.Service, have lb.State) {
	message := statusMessage(svc)
	for _, l := range have.Listeners {
		if healthy := have.Health(l.Port).Healthy; healthy > 0 && l.ReportsUnserved(message) {
			c.cfg.Recorder.Event(svc, corev1.EventTypeNormal, lb.ReasonTargetsHealthy,
				fmt.Sprintf("port %d: targets are healthy again", l.Port))
		}
	}
}

func statusMessage(svc *corev1.Service) string {
	if cond := meta.FindStatusCondition(svc.Status.Conditions, ConditionAccepted); cond != nil {
		return cond.Message
	}
	return ""
}
