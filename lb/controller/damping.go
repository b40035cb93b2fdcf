package controller

import (
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/underlay-ccm/underlay/lb"
)

// A pod that is a target and is not ready leaves after the time in which its health check finds out
// too, and one that left so comes back after a while that doubles each time.
const (
	leavesAfter = 50 * time.Second
	shortRest   = time.Minute
	longestRest = 10 * time.Minute
	flapMemory  = time.Hour
)

// Changes of one load balancer are bounded, whatever its pods, nodes and users do: so many at once,
// and one in each interval.
const (
	burstOfChanges = 60
	changeInterval = 30 * time.Second
)

// damper remembers since when pods are not ready, and how often they were not, by load balancers.
type damper struct {
	mu       sync.Mutex
	flaps    map[lb.Owner]map[lb.Target]*flap
	limiters map[lb.Owner]*limiter
}

type flap struct {
	since time.Time // not ready; zero: it is, or is gone
	left  time.Time
	rest  time.Duration // after that
}

type limiter struct {
	*rate.Limiter
	acted time.Time
}

func newDamper() *damper {
	return &damper{flaps: make(map[lb.Owner]map[lb.Target]*flap), limiters: make(map[lb.Owner]*limiter)}
}

// damp returns the pods that are to be targets, and after how long there may be others; 0: not
// before an endpoint changes. Without a ready pod, those that are targets and still there stay. A
// nil damper takes those that are ready.
func (d *damper) damp(owner lb.Owner, e endpoints, have lb.State, now time.Time) (pods []lb.Target, next time.Duration) {
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
	after := func(t time.Time) bool { // reports whether it is yet to come
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

// change returns after how long a load balancer may be changed; 0: now, and it is taken to be.
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

// acted is when a load balancer was changed last.
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
