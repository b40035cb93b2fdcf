package balancer_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/internal/ipnet"
	"github.com/underlay-ccm/underlay/test/testenv/balancer"
)

func TestHeader(t *testing.T) {
	four := balancer.Header{Source: netip.MustParseAddrPort("192.0.2.1:4660"), Destination: netip.MustParseAddrPort("198.51.100.2:80")}
	six := balancer.Header{Source: netip.MustParseAddrPort("[2001:db8::1]:65535"), Destination: netip.MustParseAddrPort("[2001:db8::2]:443")}
	const signature = "\x0d\x0a\x0d\x0a\x00\x0d\x0a\x51\x55\x49\x54\x0a"
	tests := []struct {
		header  balancer.Header
		version balancer.Version
		bytes   string
	}{
		{four, balancer.Version1, "PROXY TCP4 192.0.2.1 198.51.100.2 4660 80\r\n"},
		{six, balancer.Version1, "PROXY TCP6 2001:db8::1 2001:db8::2 65535 443\r\n"},
		{four, balancer.Version2, signature + "\x21\x11\x00\x0c\xc0\x00\x02\x01\xc6\x33\x64\x02\x12\x34\x00\x50"},
		{
			six, balancer.Version2, signature + "\x21\x21\x00\x24" +
				"\x20\x01\x0d\xb8" + strings.Repeat("\x00", 11) + "\x01" +
				"\x20\x01\x0d\xb8" + strings.Repeat("\x00", 11) + "\x02" + "\xff\xff\x01\xbb",
		},
	}
	for _, test := range tests {
		if got := string(test.header.Append([]byte("before"), test.version)); got != "before"+test.bytes {
			t.Errorf("version %d of %+v is\n%q, want\n%q", test.version, test.header, got, test.bytes)
		}
		r := bufio.NewReader(strings.NewReader(test.bytes + "after"))
		got, err := balancer.ReadHeader(r)
		rest, _ := io.ReadAll(r)
		if err != nil || got != test.header || string(rest) != "after" {
			t.Errorf("%q is read as %+v with %q behind it (%v), want %+v", test.bytes, got, rest, err, test.header)
		}
		for cut := range len(test.bytes) {
			part := bufio.NewReader(strings.NewReader(test.bytes[:cut]))
			if got, err := balancer.ReadHeader(part); err == nil {
				t.Errorf("%q is read as %+v though it isn't whole", test.bytes[:cut], got)
			}
		}
	}
}

func TestNoHeader(t *testing.T) {
	for _, bytes := range []string{
		"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n",
		"PROXY UNKNOWN\r\n" + strings.Repeat("x", 200),
		"PROXY TCP4 192.0.2.300 198.51.100.2 4660 80\r\n",
		"PROXY TCP4 192.0.2.1 198.51.100.2 466000 80\r\n",
		strings.Repeat("x", 200),
		"\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00", // LOCAL, of the proxy itself
		"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x02ab",
	} {
		if got, err := balancer.ReadHeader(bufio.NewReader(strings.NewReader(bytes))); err == nil {
			t.Errorf("%q is read as %+v", bytes, got)
		}
	}
}

// The header, with the client's own address, precedes all data, for both families and both
// versions. Checks have none.
func TestHeaderIsSent(t *testing.T) {
	t.Parallel()
	for _, version := range []balancer.Version{balancer.Version1, balancer.Version2} {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, version)
			a := w.server("a")
			heard := make(chan string, 10)
			var checked sync.Once
			w.serve(netip.AddrPortFrom(private(a), 30080), func(c net.Conn) {
				all, _ := io.ReadAll(c)
				first := false
				checked.Do(func() { first = true })
				if first && len(all) > 0 {
					t.Errorf("the check says %q", all)
				}
				if !first && len(all) > 0 {
					heard <- string(all)
				}
			})
			service := tcp(80, 30080)
			service.Proxyprotocol = hcloud.Ptr(true)
			lb := w.balance(hcloud.LoadBalancerCreateOpts{
				Services: []hcloud.LoadBalancerCreateOptsService{service},
			}, a)
			w.healthy(lb, "a:80")
			w.listens(1 + 3)
			for _, front := range []netip.Addr{
				ipnet.Addr(lb.PublicNet.IPv4.IP), ipnet.Addr(lb.PublicNet.IPv6.IP),
			} {
				c := w.dial(front, 80)
				_, err := io.WriteString(c, "hello")
				noError(t, err)
				noError(t, c.CloseWrite())
				want := balancer.Header{
					Source:      c.LocalAddr().(*net.TCPAddr).AddrPort(),
					Destination: c.RemoteAddr().(*net.TCPAddr).AddrPort(),
				}
				if got := receive(t, heard); got != string(want.Append(nil, version))+"hello" {
					t.Errorf("through %s the target hears %q, want %+v and hello", front, got, want)
				}
			}
		})
	}
}
