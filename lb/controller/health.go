package controller

import (
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/lb"
)

// unserved remembers since when listeners have had no healthy target. Another process begins anew, but for
// what the Service's condition says already.
type unserved struct {
	mu    sync.Mutex
	since map[types.UID]map[int]time.Time // by the listener's port
}

func newUnserved() *unserved { return &unserved{since: make(map[types.UID]map[int]time.Time)} }

// look replaces what is known of a Service's listeners by what one look found. Those whose checks are being
// changed begin anew.
func (u *unserved) look(uid types.UID, found []lb.Listener, changing func(lb.Listener) bool) map[int]time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	next := make(map[int]time.Time, len(found))
	for _, l := range found {
		since, known := u.since[uid][l.Port]
		if !known || changing(l) {
			since = time.Now()
		}
		next[l.Port] = since
	}
	u.since[uid] = next
	if len(next) == 0 {
		delete(u.since, uid)
	}
	return next
}

func (u *unserved) forget(uid types.UID) { u.look(uid, nil, nil) }

// targetsHealth says which listeners have had no healthy target for the time of a verdict. It looks again
// when that time is over for the others, and for listeners that have just been opened.
func (c *Controller) targetsHealth(svc *corev1.Service, spec lb.Spec, have lb.State, idle bool) (notes []lb.Note) {
	wanted, present := lb.ByPort(spec.Listeners), lb.ByPort(have.Listeners)
	changing := func(l lb.Listener) bool {
		want, ok := wanted[l.Port]
		return ok && want.Check != l.Check
	}
	found, said := have.Unserved(), saidOf(svc)
	since := c.unserved.look(svc.UID, found, changing)
	var next time.Duration
	lookAfter := func(d time.Duration) {
		if next == 0 || d < next {
			next = d
		}
	}
	for _, l := range found {
		left := time.Until(since[l.Port].Add(l.Check.Verdict()))
		if left <= 0 || l.SaidUnserved(said) && !changing(l) {
			notes = append(notes, l.NoHealthyTarget(idle))
		} else {
			lookAfter(left)
		}
	}
	for _, l := range spec.Listeners {
		if _, open := present[l.Port]; !open && have.Exists() {
			lookAfter(l.Check.Verdict())
		}
	}
	if next > 0 {
		c.queue.AddAfter(nameOf(svc), next)
	}
	return notes
}

// announceHealed tells of listeners that find targets healthy again, of which the Service says otherwise.
func (c *Controller) announceHealed(svc *corev1.Service, have lb.State) {
	said := saidOf(svc)
	for _, l := range have.Listeners {
		if healthy := have.Health(l.Port).Healthy; healthy > 0 && l.SaidUnserved(said) {
			c.recorder.Event(svc, corev1.EventTypeNormal, lb.ReasonTargetsHealthy, fmt.Sprintf("port %d: targets are healthy again", l.Port))
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
