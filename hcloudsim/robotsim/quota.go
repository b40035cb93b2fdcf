package robotsim

import (
	"slices"
	"time"
)

const interval = time.Hour

type quota struct {
	limit   int // Unlimited: no limit
	fixed   bool
	refused bool // count refused requests too
	counted []time.Time
}

func newQuotas(opts Options) map[string]*quota {
	quotas := map[string]*quota{}
	for _, op := range operations() {
		q := &quota{limit: op.Quota, fixed: opts.FixedHours, refused: opts.RefusedCount}
		if limit, changed := opts.Quotas[op.Name()]; changed && limit != 0 {
			q.limit = limit
		}
		quotas[op.Name()] = q
	}
	return quotas
}

// take counts one request and reports whether it is allowed.
func (q *quota) take(now time.Time) bool {
	if q.limit == Unlimited {
		return true
	}
	q.counted = slices.DeleteFunc(q.counted, func(t time.Time) bool {
		if q.fixed {
			return t.Before(now.Truncate(interval))
		}
		return now.Sub(t) >= interval
	})
	allowed := len(q.counted) < q.limit
	if allowed || q.refused {
		q.counted = append(q.counted, now)
	}
	return allowed
}
