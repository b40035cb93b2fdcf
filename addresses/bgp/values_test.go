package bgp_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/addresses/bgp"
)

func TestCommunities(t *testing.T) {
	for text, want := range map[string]string{
		"64512:100": "64512:100", "0:0": "0:0", "65535:65535": "65535:65535", "no-export": "65535:65281",
		"no-advertise": "65535:65282", "blackhole": "65535:666", "graceful-shutdown": "65535:0",
		"64512:1:2": "64512:1:2", "4294967295:0:1": "4294967295:0:1",
	} {
		if c, err := bgp.ParseCommunity(text); err != nil || c.String() != want {
			t.Errorf("%s: %s, %v", text, c, err)
		}
	}
	for _, text := range []string{"", "1", ":", "1:", "65536:1", "1:65536", "1:2:3:4", "1:2:4294967296", "-1:2", "+1:2", "01:2", " 1:2", "1:x", "No-Export", "::"} {
		if c, err := bgp.ParseCommunity(text); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", text)) {
			t.Errorf("%q: %s, %v", text, c, err)
		}
	}
}

func FuzzParseCommunity(f *testing.F) {
	f.Add("64512:100")
	f.Add("1:2:3")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := bgp.ParseCommunity(text)
		if err != nil {
			return
		}
		if again, err := bgp.ParseCommunity(c.String()); err != nil || again != c {
			t.Errorf("%q is %s, which is %s, %v", text, c, again, err)
		}
	})
}

func TestPasswords(t *testing.T) {
	p, err := bgp.NewPassword("  s3cret\n")
	if err != nil || p.Reveal() != "s3cret" {
		t.Fatalf("%q, %v", p.Reveal(), err)
	}
	peer := bgp.Peer{Name: "a", Password: p}
	written, err := json.Marshal(peer)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{string(written), fmt.Sprint(peer), fmt.Sprintf("%+v %#v %q %x", peer, peer, p, p)} {
		if strings.Contains(text, "s3cret") || strings.Contains(text, "733363") {
			t.Errorf("it prints itself: %s", text)
		}
	}
	if (bgp.Password{}).Reveal() != "" {
		t.Error("none is one")
	}
	for name, text := range map[string]string{"empty": " \n", "long": strings.Repeat("x", 81), "lines": "s3cret\ntwo"} {
		if _, err := bgp.NewPassword(text); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCheck(t *testing.T) {
	good := router("a", "192.0.2.1")
	if err := desired("203.0.113.1/32", good, router("six", "2001:db8::1")).Check(); err != nil {
		t.Errorf("a good one: %v", err)
	}
	for want, change := range map[string]func(*bgp.Desired){
		"asn: 0":              func(d *bgp.Desired) { d.ASN = 0 },
		"asn: 23456":          func(d *bgp.Desired) { d.ASN = 23456 },
		"router ID: 0.0.0.0":  func(d *bgp.Desired) { d.RouterID = netip.IPv4Unspecified() },
		"router ID: 2001:":    func(d *bgp.Desired) { d.RouterID = netip.MustParseAddr("2001:db8::1") },
		"restart time: 2h":    func(d *bgp.Desired) { d.RestartTime = 2 * time.Hour },
		"restart time: 1.5s":  func(d *bgp.Desired) { d.RestartTime = 1500 * time.Millisecond },
		"prefix 192.0.2.1/24": func(d *bgp.Desired) { d.Prefixes = []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")} },
		`peer "b": address: 192.0.2.1: peer "a" has it`: func(d *bgp.Desired) { d.Peers = append(d.Peers, router("b", "192.0.2.1")) },
		`peer "a": name`:               func(d *bgp.Desired) { d.Peers = append(d.Peers, router("a", "192.0.2.2")) },
		`peer "a": address: fe80::1`:   func(d *bgp.Desired) { d.Peers[0].Address = netip.MustParseAddr("fe80::1%eth0") },
		`peer "a": address: 127.0.0.1`: func(d *bgp.Desired) { d.Peers[0].Address = netip.MustParseAddr("127.0.0.1") },
		`peer "a": address: invalid`:   func(d *bgp.Desired) { d.Peers[0].Address = netip.Addr{} },
		`peer "a": asn: 0`:             func(d *bgp.Desired) { d.Peers[0].ASN = 0 },
		`peer "a": holdTime: 2s`:       func(d *bgp.Desired) { d.Peers[0].HoldTime = 2 * time.Second },
		`peer "a": holdTime: 3.5s`:     func(d *bgp.Desired) { d.Peers[0].HoldTime = 3500 * time.Millisecond },
		`peer "a": bfd: true`:          func(d *bgp.Desired) { d.Peers[0].BFD, d.Peers[0].Multihop = true, true },
	} {
		d := desired("203.0.113.1/32", good)
		change(&d)
		if err := d.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	all := bgp.CheckPeers([]bgp.Peer{{Name: "x"}, {Name: "x", HoldTime: 1}})
	if text := errors.Join(all...).Error(); len(all) < 5 {
		t.Errorf("not all at once: %s", text)
	}
}
