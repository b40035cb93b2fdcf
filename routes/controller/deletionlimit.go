package controller

import "time"

// deletionCount counts the routes that were deleted in the current period, so that
// a mistake, ours or somebody's, takes time to do harm.
type deletionCount struct {
	period time.Duration

	since   time.Time
	deleted int // since then
}

// count is how many routes were deleted in the period that now belongs to.
func (d *deletionCount) count(now time.Time) int {
	if now.Sub(d.since) >= d.period {
		d.since, d.deleted = now, 0
	}
	return d.deleted
}

func (d *deletionCount) add() { d.deleted++ }
