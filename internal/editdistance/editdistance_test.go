package editdistance_test

import (
	"testing"

	"github.com/underlay-ccm/underlay/internal/editdistance"
)

func TestBetween(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"", "abc", 3},
		{"pool", "pool", 0},
		{"pool", "pools", 1},
		{"netwrok", "network", 2},
		{"kitten", "sitting", 3},
	} {
		if got := editdistance.Between(c.a, c.b); got != c.want {
			t.Errorf("between %q and %q: %d, want %d", c.a, c.b, got, c.want)
		}
		if got := editdistance.Between(c.b, c.a); got != c.want {
			t.Errorf("between %q and %q: %d, want %d", c.b, c.a, got, c.want)
		}
	}
}
