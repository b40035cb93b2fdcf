package robot

import (
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim/robotsim"
)

// The initial quotas are the documented ones.
func TestQuotasAreTheDocumentedOnes(t *testing.T) {
	documented := map[string]int{}
	for _, op := range robotsim.Operations() {
		documented[op.Name()] = op.Quota
	}
	for _, op := range operations() {
		if documented[op.name()] != op.quota {
			t.Errorf("%s: %d in an hour, documented are %d", op.name(), op.quota, documented[op.name()])
		}
	}
}

// The quota in a rejection is used within limits, and never increases a quota that is counted over
// the same interval.
func TestBelieving(t *testing.T) {
	for _, c := range []struct {
		most, seconds int
		limit         int
		interval      time.Duration
	}{
		{0, 0, 200, time.Hour},
		{50, 0, 50, time.Hour},
		{50, 3600, 50, time.Hour},
		{500, 3600, 200, time.Hour},
		{5, 60, 5, time.Minute},
		{5, 1, 5, time.Minute},
		{5, -1, 5, time.Hour},
		{2000, 86400, 2000, 24 * time.Hour},
		{2000, 1 << 60, 2000, 24 * time.Hour},
		{-5, 3600, 200, time.Hour},
	} {
		q := newQuota(200)
		q.believe(&Error{MaxRequests: c.most, Interval: c.seconds})
		if q.limit != c.limit || q.interval != c.interval {
			t.Errorf("%d in %d s: %d in %s, want %d in %s", c.most, c.seconds, q.limit, q.interval, c.limit, c.interval)
		}
	}
}
