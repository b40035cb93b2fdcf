package hetzner

import (
	"strings"
	"testing"
	"time"
)

// Our own clock may be set back. How new a list has to be by it is compared by the
// monotonic clock, which is not; a moment that another clock told has no such
// reading.
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
