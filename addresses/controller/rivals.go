package controller

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// putRight is how many overwrites by another controller are corrected at once. By then it is
	// clear that both controllers claim the Service and neither stops.
	putRight                      = 3
	firstRivalWait, lastRivalWait = time.Second, time.Minute
	// forgiven is how long a Service must not be overwritten for its count to be reset.
	forgiven = 10 * time.Minute
)

type rival struct {
	wrote string // addresses that this controller wrote last
	times int    // number of overwrites
	last  time.Time
	next  time.Time // earliest next correction
}

type rivals map[types.UID]*rival

// waits reports whether to delay a change because another controller keeps overwriting the status,
// and whether to send an Event about it.
func (r rivals) waits(ch change, now time.Time) (waits, report bool) {
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

func (r rivals) shows(ch change) {
	one := r[ch.from.UID]
	if one == nil {
		one = &rival{}
		r[ch.from.UID] = one
	}
	one.wrote = joined(shown(ch.to))
}

func (r rivals) forget(p plan) {
	for uid := range r {
		if p.services[uid] == nil {
			delete(r, uid)
		}
	}
}

// nextAfter returns when the first delayed correction is due, or the zero time.
func (r rivals) nextAfter(now time.Time) (first time.Time) {
	for _, one := range r {
		if one.next.After(now) && (first.IsZero() || one.next.Before(first)) {
			first = one.next
		}
	}
	return first
}
