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

func TestMeant(t *testing.T) {
	known := []string{"pool", "address-pool", "addresses"}
	for name, want := range map[string]string{
		"pool": "", "addresses": "", "something": "",
		"adresses": "addresses", "address": "addresses", "pools": "pool", "addresspool": "address-pool",
	} {
		if got, slip := editdistance.Meant(name, known); slip != (want != "") || slip && got != want {
			t.Errorf("%s: %q %v, want %q", name, got, slip, want)
		}
	}
}
