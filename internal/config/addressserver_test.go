package config

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/underlay-ccm/underlay/addresses"
)

func TestPoolsWithTheAPIServer(t *testing.T) {
	pool := func(text string) AddressPool {
		r, err := addresses.ParseRange(text)
		if err != nil {
			t.Fatal(err)
		}
		return AddressPool{Pool: addresses.Pool{Ranges: []addresses.Range{r}}, Field: "addresses.pools[0].ranges"}
	}
	for _, c := range []struct {
		host, ranges string
		refused      string
	}{
		{"https://192.0.2.20:6443", "192.0.2.16-192.0.2.31", "192.0.2.20"},
		{"192.0.2.20:6443", "192.0.2.16-192.0.2.31", "192.0.2.20"},
		{"192.0.2.20", "192.0.2.16-192.0.2.31", "192.0.2.20"},
		{"https://[2001:db8::5]:6443/", "2001:db8::/120", "2001:db8::5"},
		{"[2001:db8::5]:6443", "2001:db8::/120", "2001:db8::5"},
		{"https://192.0.2.10:6443", "192.0.2.16-192.0.2.31", ""},
		{"https://api.example.com:6443", "192.0.2.16-192.0.2.31", ""},
		{"", "192.0.2.16-192.0.2.31", ""},
	} {
		err := Addresses{Pools: []AddressPool{pool(c.ranges)}}.CheckServer(c.host)
		var wrong *Error
		switch {
		case c.refused == "" && err != nil:
			t.Errorf("%q: %v", c.host, err)
		case c.refused != "" && (!errors.As(err, &wrong) || wrong.Value != c.refused || wrong.Field == ""):
			t.Errorf("%q: error %v, want one about %s", c.host, err, c.refused)
		}
		if addr, err := netip.ParseAddr(c.refused); err == nil && !pool(c.ranges).Contains(addr) {
			t.Errorf("the table is wrong: %s is not in %s", c.refused, c.ranges)
		}
	}
}
