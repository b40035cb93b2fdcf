//go:build linux

package sysctl_test

import (
	"context"
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/underlay-ccm/underlay/internal/sysctl"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

// The advertised default route of a machine remains when the machine starts to forward, and cleanup
// restores every value.
func TestAdvertisedRoutesOutliveForwarding(t *testing.T) {
	node, router := netns.New(t), netns.New(t)
	netns.Link(node, "eth0", router, "lan0")
	// An administrator had hardened the machine; the kernel resets that with ip_forward.
	node.Sysctl("net/ipv4/conf/all/accept_redirects", "0")
	node.Sysctl("net/ipv4/conf/eth0/rp_filter", "1")
	before := node.Run("sysctl", "-a", "--pattern", `^net\.ipv[46]\.(conf|neigh|ip_forward)`)

	advertise(t, router, "lan0")
	if !eventuallyRouted(t, node) {
		t.Fatal("the advertisement made no default route; nothing to test with")
	}
	s := sysctl.New(sysctl.Options{Root: "/proc/sys", StateDir: t.TempDir()})
	want := sysctl.Desired{IPv4: true, IPv6: true, RouterAdvertised: []string{"eth0"}, Asymmetric: []string{"eth0"}, ProxyARP: []string{"eth0"}}
	var changed []string
	var err error
	node.Do(func() { changed, _, err = s.Apply(t.Context(), want) })
	if err != nil || len(changed) != 5 {
		t.Fatalf("Apply: %q, %v, want 5 changes", changed, err)
	}
	if routes := defaultRoutes(node); !strings.Contains(routes, "proto ra") {
		t.Errorf("the advertised default route is gone; left is %q", routes)
	}
	node.Do(func() { changed, _, err = s.Apply(t.Context(), want) })
	if err != nil || len(changed) > 0 {
		t.Errorf("at rest it changes %q, %v", changed, err)
	}
	node.Do(func() { _, err = s.Cleanup(t.Context()) })
	if err != nil {
		t.Errorf("Cleanup: %v", err)
	}
	if after := node.Run("sysctl", "-a", "--pattern", `^net\.ipv[46]\.(conf|neigh|ip_forward)`); after != before {
		t.Errorf("sysctls are not as before:\n%s", difference(before, after))
	}
}

func defaultRoutes(s *netns.Space) string { return s.Run("ip", "-6", "route", "show", "default") }

func eventuallyRouted(t *testing.T, s *netns.Space) bool {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 5*time.Second, true,
		func(context.Context) (bool, error) {
			return strings.Contains(defaultRoutes(s), "proto ra"), nil
		})
	return err == nil
}

// advertise sends a router advertisement (RFC 4861, section 4.2).
func advertise(t *testing.T, s *netns.Space, link string) {
	t.Helper()
	message := []byte{134, 0, 0, 0, 64, 0}
	message = binary.BigEndian.AppendUint16(message, 1800) // router lifetime in seconds
	message = append(message, make([]byte, 8)...)
	to := unix.SockaddrInet6{Addr: netip.MustParseAddr("ff02::1").As16()}
	var err error
	s.Do(func() {
		var fd int
		if fd, err = unix.Socket(unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6); err != nil {
			return
		}
		defer unix.Close(fd)
		for _, option := range []int{unix.IPV6_MULTICAST_HOPS, unix.IPV6_UNICAST_HOPS} {
			if err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, option, 255); err != nil {
				return
			}
		}
		if err = unix.BindToDevice(fd, link); err != nil {
			return
		}
		// Until the link-local address is there.
		for range 200 {
			if err = unix.Sendto(fd, message, 0, &to); err == nil {
				return
			}
			time.Sleep(10 * time.Millisecond) // the kernel reports it only by netlink
		}
	})
	if err != nil {
		t.Fatalf("sending a router advertisement: %v", err)
	}
}

func difference(before, after string) string {
	var out strings.Builder
	old := map[string]bool{}
	for line := range strings.Lines(before) {
		old[line] = true
	}
	for line := range strings.Lines(after) {
		if !old[line] {
			out.WriteString(line)
		}
	}
	return out.String()
}
