package controller

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// A status that somebody else overwrites is put right at once so many times. Whoever goes on
	// is another controller that takes the Service for its own, and neither of them gives in.
	putRight = 3
	// The next times wait, longer and longer.
	firstRivalWait, lastRivalWait = time.Second, time.Minute
	// forgiven is when a Service that nobody overwrote meanwhile has no rival any more.
	forgiven = 10 * time.Minute
)

// rival is who else writes the status of a Service.
type rival struct {
	wrote string // what this controller let it show last
	times int    // that this was overwritten
	last  time.Time
	next  time.Time // the status is put right again
}

// rivals are those of all Services that this process wrote to.
type rivals map[types.UID]*rival

// waits reports whether a change has to wait because somebody goes on overwriting the status, and
// whether that is to be told.
func (r rivals) waits(ch change, now time.Time) (waits, tell bool) {
	one := r[ch.from.UID]
	if one == nil || one.wrote != joined(shown(ch.to)) || slices.Equal(shown(ch.from), shown(ch.to)) {
		return false, false
	}
	if now.Before(one.next) {
		return true, false
	}
	if now.Sub(one.last) > forgiven {
		one.times = 0
	}
	one.times, one.last = one.times+1, now
	if one.times >= putRight {
		wait := min(firstRivalWait<<min(one.times-putRight, 10), lastRivalWait)
		one.next = now.Add(wait)
	}
	return false, one.times == putRight
}

// shows notes what a Service shows from now on.
func (r rivals) shows(ch change) {
	one := r[ch.from.UID]
	if one == nil {
		one = &rival{}
		r[ch.from.UID] = one
	}
	one.wrote = joined(shown(ch.to))
}

// forget drops Services that are gone.
func (r rivals) forget(p plan) {
	for uid := range r {
		if p.services[uid] == nil {
			delete(r, uid)
		}
	}
}

// nextAfter is when the first status is put right again that waits; zero: none does.
func (r rivals) nextAfter(now time.Time) (first time.Time) {
	for _, one := range r {
		if one.next.After(now) && (first.IsZero() || one.next.Before(first)) {
			first = one.next
		}
	}
	return first
}
