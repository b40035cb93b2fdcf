package hcloudsim

import (
	"math"
	"net/http"
	"strconv"
	"time"
)

// budget is the project's rate limit, a token bucket with constant refill.
type budget struct {
	limit  int // Unlimited: no limit
	refill float64
	left   float64
	since  time.Time
}

// take spends one request and reports whether it is allowed.
func (b *budget) take(now time.Time) bool {
	if b.limit == Unlimited {
		return true
	}
	b.left = min(float64(b.limit), b.left+now.Sub(b.since).Seconds()*b.refill)
	b.since = now
	if b.left < 1 {
		return false
	}
	b.left--
	return true
}

// describe sets the rate limit headers. Reset is the time when the budget is full again, not when
// the next request is possible.
func (b *budget) describe(h http.Header) {
	if b.limit == Unlimited {
		return
	}
	missing := float64(b.limit) - b.left
	full := b.since.Add(time.Duration(math.Ceil(missing/b.refill)) * time.Second)
	h.Set("RateLimit-Limit", strconv.Itoa(b.limit))
	h.Set("RateLimit-Remaining", strconv.Itoa(int(b.left)))
	h.Set("RateLimit-Reset", strconv.FormatInt(full.Unix(), 10))
}
