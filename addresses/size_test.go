package addresses_test

import (
	"math"
	"testing"

	"github.com/underlay-ccm/underlay/addresses"
)

func TestSize(t *testing.T) {
	for text, want := range map[string]uint64{
		"192.0.2.1":                       1,
		"192.0.2.16-192.0.2.31":           16,
		"192.0.2.0/24":                    256,
		"0.0.0.0/0":                       1 << 32,
		"2001:db8::/124":                  16,
		"2001:db8::ffff:ffff:ffff:ffff":   1,
		"2001:db8::/64":                   math.MaxUint64,
		"2001:db8::1-2001:db8:0:0:ffff::": 0xffff << 48,
		// Across a border of 64 bits.
		"2001:db8::ffff:ffff:ffff:fff0-2001:db8:0:1::f": 32,
		"2001:db8::f-2001:db8:0:1::e":                   math.MaxUint64,
		"2001:db8::f-2001:db8:0:1::d":                   math.MaxUint64,
		"2001:db8::/32":                                 math.MaxUint64,
	} {
		r, err := addresses.ParseRange(text)
		if err != nil {
			t.Fatal(err)
		}
		p := addresses.Pool{Ranges: []addresses.Range{r}}
		if got := p.Size(addresses.FamilyOf(r.First)); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
}

func TestSizeOfAPool(t *testing.T) {
	p := addresses.Pool{}
	for _, text := range []string{"192.0.2.0/28", "198.51.100.7", "2001:db8::/126", "2001:db8:1::/64", "2001:db8:2::/64"} {
		r, err := addresses.ParseRange(text)
		if err != nil {
			t.Fatal(err)
		}
		p.Ranges = append(p.Ranges, r)
	}
	if v4, v6 := p.Size(addresses.IPv4), p.Size(addresses.IPv6); v4 != 17 || v6 != math.MaxUint64 {
		t.Errorf("%d IPv4 addresses and %d IPv6 addresses, want 17 and all that fit", v4, v6)
	}
}
