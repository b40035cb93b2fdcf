package hetzner

import (
	"strings"
	"testing"
	"time"
)

// The local clock may be set back. Times of it are compared by the monotonic clock, which is not
// affected; a time of another clock has no monotonic reading.
func TestOurOwnTimesAreMonotonic(t *testing.T) {
	s := &Servers{}
	now := time.Now()
	ahead := now.Add(time.Minute).Round(0)
	for what, got := range map[string]time.Time{
		"now": s.past(now, now), "earlier": s.past(now.Add(-time.Minute), now),
		"ahead": s.past(ahead, now), "ahead, again": s.past(ahead, now.Add(time.Second)),
	} {
		if !strings.Contains(got.String(), " m=") {
			t.Errorf("%s: %v has no monotonic reading", what, got)
		}
	}
}
