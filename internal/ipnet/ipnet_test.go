package ipnet_test

import (
	"net"
	"net/netip"
	"testing"

	"github.com/underlay-ccm/underlay/internal/ipnet"
)

func TestThereAndBack(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.7/8": "10.0.0.0/8", "192.0.2.1/32": "192.0.2.1/32", "2001:db8::1/64": "2001:db8::/64", "0.0.0.0/0": "0.0.0.0/0",
	} {
		ip, n, err := net.ParseCIDR(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := ipnet.Addr(ip); got != netip.MustParsePrefix(text).Addr() { // ParseCIDR gives 16 bytes
			t.Errorf("%s has the address %s", text, got)
		}
		got := ipnet.Prefix(&net.IPNet{IP: ip.Mask(n.Mask), Mask: n.Mask})
		if got.String() != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
		if again := ipnet.Of(got); again.String() != n.String() {
			t.Errorf("%s is %s again, want %s", got, again, n)
		}
	}
	if ipnet.Addr(nil).IsValid() || ipnet.Prefix(nil).IsValid() {
		t.Error("none is something")
	}
}
