package controller

import "time"

// learnedLimit is the limit inferred from an addition that the table rejected. What the table
// counted is unknown, so the limit expires: one addition is tried after a while, and if that
// is rejected too, the next one after a longer while.
type learnedLimit struct {
	pause
	taught bool
	at     int // number of routes at the rejection
}

func newLearnedLimit() learnedLimit {
	return learnedLimit{pause: pause{first: 30 * time.Second, longest: 15 * time.Minute}}
}

// refused records that the table accepts no route beyond the existing ones.
func (l *learnedLimit) refused(standing int, now time.Time) {
	l.taught, l.at = true, standing
	l.begin(now)
}

// grew records that the table accepted another route.
func (l *learnedLimit) grew(standing int) {
	if standing > l.at {
		l.taught = false
		l.end()
	}
}

// listed records the number of routes in a list. If it has changed, the limit is unknown.
func (l *learnedLimit) listed(standing int) {
	l.taught = l.taught && standing == l.at
}

// limit returns the configured limit, or the inferred one. A due try gets room for one route.
func (l *learnedLimit) limit(configured, reserve, standing int, now time.Time) int {
	switch {
	case !l.taught:
		return configured
	case l.left(now) > 0:
		return min(configured, l.at)
	default:
		return min(configured, standing+reserve+1)
	}
}
