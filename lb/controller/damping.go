package controller

import (
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/underlay-ccm/underlay/lb"
)

// A pod that is a target and not ready is removed when its health check has failed too. After that
// it is added again only after a delay that doubles each time.
const (
	leavesAfter = 50 * time.Second
	shortRest   = time.Minute
	longestRest = 10 * time.Minute
	flapMemory  = time.Hour
)

// Changes of a load balancer are limited to a burst and a rate, whatever causes them.
const (
	burstOfChanges = 60
	changeInterval = 30 * time.Second
)

// damper records by load balancer since when pods are not ready, and how often they were removed.
type damper struct {
	mu       sync.Mutex
	flaps    map[lb.Owner]map[lb.Target]*flap
	limiters map[lb.Owner]*limiter
}

type flap struct {
	since time.Time // since when not ready; zero: ready or deleted
	left  time.Time
	rest  time.Duration // delay before it is added again
}

type limiter struct {
	*rate.Limiter
	acted time.Time
}

func newDamper() *damper {
	return &damper{
		flaps: make(map[lb.Owner]map[lb.Target]*flap), limiters: make(map[lb.Owner]*limiter),
	}
}

// damp returns the pods that should be targets, and the time until that may change; 0: not before
// an endpoint changes. If no pod is ready, existing targets among the endpoints are kept. A nil
// damper returns all ready pods.
func (d *damper) damp(
	owner lb.Owner, e endpoints, have lb.State, now time.Time,
) (pods []lb.Target, next time.Duration) {
	if d == nil {
		return e.pods.Targets, 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	known := d.flaps[owner]
	if known == nil {
		known = make(map[lb.Target]*flap)
		d.flaps[owner] = known
	}
	after := func(t time.Time) bool { // reports whether t is in the future
		left := max(t.Sub(now), 0)
		next = sooner(next, left)
		return left > 0
	}
	isTarget := func(t lb.Target) bool { return slices.Contains(have.Targets, t) }
	serves := slices.ContainsFunc(e.pods.Targets, isTarget)
	for t, f := range known {
		if !slices.Contains(e.unready, t) {
			f.since = time.Time{}
			if now.Sub(f.left) > flapMemory {
				delete(known, t)
			}
		}
	}
	for _, t := range e.pods.Targets {
		if f := known[t]; f == nil || isTarget(t) || !serves || !after(f.left.Add(f.rest)) {
			pods = append(pods, t)
		}
	}
	for _, t := range e.unready {
		f := known[t]
		if f == nil {
			f = &flap{}
			known[t] = f
		}
		if f.since.IsZero() {
			f.since = now
		}
		switch {
		case !isTarget(t):
		case len(e.pods.Targets) == 0, after(f.since.Add(leavesAfter)):
			pods = append(pods, t)
		case f.left.Before(f.since):
			f.left, f.rest = now, min(max(2*f.rest, shortRest), longestRest)
		}
	}
	slices.SortFunc(pods, lb.Target.Compare)
	return pods, next
}

// change reserves a change of a load balancer, and returns the delay until it is allowed; 0: now.
func (d *damper) change(owner lb.Owner) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.limiters[owner]
	if l == nil {
		l = &limiter{Limiter: rate.NewLimiter(rate.Every(changeInterval), burstOfChanges)}
		d.limiters[owner] = l
	}
	r := l.Reserve()
	if delay := r.Delay(); delay > 0 {
		r.Cancel()
		return delay
	}
	l.acted = time.Now()
	return 0
}

// acted returns the time of a load balancer's last change.
func (d *damper) acted(owner lb.Owner) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l := d.limiters[owner]; l != nil {
		return l.acted
	}
	return time.Time{}
}

func (d *damper) forget(owner lb.Owner) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.flaps, owner)
	delete(d.limiters, owner)
}
