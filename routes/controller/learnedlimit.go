package controller

import (
	"time"

	"k8s.io/client-go/util/workqueue"
)

// learnedLimit is a limit that the table itself taught by refusing an addition.
// Nobody can tell what it counted, so it expires: one addition is tried after a
// while, and if that is refused too, the next one after a longer while.
type learnedLimit struct {
	backoff workqueue.TypedRateLimiter[string]
	taught  bool
	at      int       // how many routes stood when it refused
	due     time.Time // when to try again
}

func newLearnedLimit() learnedLimit {
	return learnedLimit{backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[string](30*time.Second, 15*time.Minute)}
}

// refused notes that the table took no route beyond those that stand.
func (l *learnedLimit) refused(standing int, now time.Time) {
	l.taught, l.at, l.due = true, standing, now.Add(l.backoff.When(everything))
}

// grew notes that the table took one more route.
func (l *learnedLimit) grew(standing int) {
	if standing > l.at {
		l.taught = false
		l.backoff.Forget(everything)
	}
}

// listed notes how many routes stand: with fewer there is room again, and with
// more the limit is another.
func (l *learnedLimit) listed(standing int) {
	l.taught = l.taught && standing == l.at
}

// limit is how many routes to keep to: what is configured, or less if the table
// taught so. When it is time to try again that leaves room for one.
func (l *learnedLimit) limit(configured, reserve, standing int, now time.Time) int {
	switch {
	case !l.taught:
		return configured
	case now.Before(l.due):
		return min(configured, l.at)
	default:
		return min(configured, standing+reserve+1)
	}
}

// wait is the time until the table is tried again.
func (l *learnedLimit) wait(now time.Time) (wait time.Duration, any bool) {
	return l.due.Sub(now), l.taught && now.Before(l.due)
}
