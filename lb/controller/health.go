package controller

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/underlay-ccm/underlay/lb"
)

// targetsHealth says which listeners have had no healthy target for the time of a verdict. It looks
// again when that time is over for the others, and for listeners that have just been opened.
func (c *Controller) targetsHealth(svc *corev1.Service, spec lb.Spec, have lb.State, idle bool, opened []int) (notes []lb.Note) {
	wanted, present := lb.ByPort(spec.Listeners), lb.ByPort(have.Listeners)
	changed := func(l lb.Listener) bool {
		want, ok := wanted[l.Port]
		return ok && want.Check != l.Check
	}
	found, said := have.Unserved(), saidOf(svc)
	var ports []int // another check begins anew
	for _, l := range found {
		if !changed(l) {
			ports = append(ports, l.Port)
		}
	}
	ports = append(ports, opened...) // their time begins now
	since := c.unserved.look(string(svc.UID), ports, time.Now())
	var next time.Duration
	for _, l := range found {
		began, known := since[l.Port]
		left := time.Until(began.Add(l.Check.Verdict()))
		switch {
		case !known:
			next = sooner(next, l.Check.Verdict())
		case left <= 0, l.SaidUnserved(said):
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

// announceHealed tells of listeners that find targets healthy again, of which the Service says
// otherwise.
func (c *Controller) announceHealed(svc *corev1.Service, have lb.State) {
	said := saidOf(svc)
	for _, l := range have.Listeners {
		if healthy := have.Health(l.Port).Healthy; healthy > 0 && l.SaidUnserved(said) {
			c.cfg.Recorder.Event(svc, corev1.EventTypeNormal, lb.ReasonTargetsHealthy, fmt.Sprintf("port %d: targets are healthy again", l.Port))
		}
	}
}

// saidOf is the message of the Service's condition.
func saidOf(svc *corev1.Service) string {
	if cond := meta.FindStatusCondition(svc.Status.Conditions, ConditionAccepted); cond != nil {
		return cond.Message
	}
	return ""
}
