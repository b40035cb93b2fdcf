package robot

import (
	"testing"

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

// The quota in a rejection is used if it is counted by the hour, and never increases the limit.
func TestTheQuotaOfARejection(t *testing.T) {
	for _, c := range []struct{ most, seconds, limit int }{
		{0, 0, 200},
		{50, 0, 50},
		{50, 3600, 50},
		{500, 3600, 200},
		{5, 60, 200},
		{2000, 86400, 200},
		{-5, 3600, 200},
	} {
		q := newQuota(200)
		q.result(true, &Error{Code: CodeRateLimit, MaxRequests: c.most, Interval: c.seconds})
		if q.limit != c.limit {
			t.Errorf("%d in %d s: the limit is %d, want %d", c.most, c.seconds, q.limit, c.limit)
		}
	}
}
