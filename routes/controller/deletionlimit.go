package controller

import "time"

// deletionCount counts the routes deleted per period, so that a mistake takes time to cause harm.
type deletionCount struct {
	period time.Duration

	since   time.Time
	deleted int // in the period from since on
}

// count returns the number of deletions in the period that includes now.
func (d *deletionCount) count(now time.Time) int {
	if now.Sub(d.since) >= d.period {
		d.since, d.deleted = now, 0
	}
	return d.deleted
}

func (d *deletionCount) add() { d.deleted++ }
