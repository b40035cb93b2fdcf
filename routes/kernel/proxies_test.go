//go:build linux

package kernel_test

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/underlay-ccm/underlay/routes/agent"
	"github.com/underlay-ccm/underlay/routes/kernel"
	"github.com/underlay-ccm/underlay/routes/kernel/kerneltest"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

// server is a dedicated server on a VLAN with other servers, with an uplink, a pod, and containers
// that are no pods. gateway is on its VLAN.
type server struct {
	*netns.Space
	gateway *netns.Space
	vlan    int // the index of its interface on the VLAN
	kernel  *kernel.Kernel
}

const (
	serverAddr = "10.0.64.2"
	podAddr    = "10.0.96.5" // of the podCIDR 10.0.96.0/28
)

func newServer(t *testing.T) *server {
	t.Helper()
	kerneltest.Need(t)
	s := &server{Space: netns.New(t), gateway: netns.New(t)}
	netns.Link(s.Space, "eth0.4000", s.gateway, "eth0")
	for _, link := range []string{"eth0", "veth1", "docker0"} {
		netns.Link(s.Space, link, netns.New(t), "eth0")
	}
	s.Run("ip", "address", "add", serverAddr+"/18", "dev", "eth0.4000")
	s.Run("ip", "address", "add", "203.0.113.7/24", "dev", "eth0")
	s.Run("ip", "address", "add", "172.17.0.1/16", "dev", "docker0")
	s.Run("ip", "address", "add", "10.0.96.1/32", "dev", "veth1") // as the CNI plugin ptp does
	s.Run("ip", "route", "add", "default", "via", "203.0.113.1")
	s.Run("ip", "route", "add", podAddr, "dev", "veth1")
	s.Run("ip", "route", "add", "unreachable", "10.0.96.0/28", "metric", "4294967295")
	s.Run("ip", "route", "add", "10.0.96.16/28", "via", "10.0.64.3")
	s.Run("ip", "route", "add", "10.244.0.0/16", "via", "10.0.64.1")
	s.Sysctl("net/ipv4/ip_forward", "1")
	s.Sysctl("net/ipv4/neigh/eth0.4000/proxy_delay", "0")
	s.gateway.Run("ip", "address", "add", "10.0.64.1/18", "dev", "eth0")
	var err error
	s.Do(func() {
		s.kernel, err = kernel.Open()
		if link, _ := net.InterfaceByName("eth0.4000"); link != nil {
			s.vlan = link.Index
		}
	})
	if err != nil || s.vlan == 0 {
		t.Fatalf("eth0.4000 is interface %d, %v", s.vlan, err)
	}
	t.Cleanup(s.kernel.Close)
	return s
}

// answer adds proxy entries for the server's whole podCIDR.
func (s *server) answer(t *testing.T) []agent.Proxy {
	t.Helper()
	var all []agent.Proxy
	podCIDR := netip.MustParsePrefix("10.0.96.0/28")
	for a := podCIDR.Addr(); podCIDR.Contains(a); a = a.Next() {
		p := agent.Proxy{Link: s.vlan, Addr: a, Protocol: agent.Protocol}
		if err := s.kernel.AddProxy(t.Context(), p); err != nil {
			t.Fatalf("answering for %s: %v", p, err)
		}
		all = append(all, p)
	}
	return all
}

func (s *server) proxies(t *testing.T) []agent.Proxy {
	t.Helper()
	found, err := s.kernel.Proxies(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(found, func(a, b agent.Proxy) int { return a.Addr.Compare(b.Addr) })
	return found
}

// The test compares the addresses for which the kernel replies to ARP on a VLAN with proxy
// neighbors and with the sysctl proxy_arp. They are the reasons for the first and against the
// second.
func TestWhomARPIsAnsweredFor(t *testing.T) {
	s := newServer(t)
	targets := []struct {
		addr, what        string
		entries, proxyARP bool
	}{
		{podAddr, "its pod", true, true},
		{"10.0.96.7", "its podCIDR where there is no pod", false, false},
		{"10.0.96.0", "its podCIDR's network address", false, false},
		{"10.0.96.17", "another server's pod", false, false},
		{"10.0.96.40", "a podCIDR of the pool that nobody has", false, false},
		{"10.0.64.3", "another server", false, false},
		{"10.0.64.1", "the gateway", false, false},
		{"10.244.2.5", "a pod of a cloud server", false, false},
		{"172.17.0.5", "a container that is no pod", false, true},
		{"198.51.100.9", "the outside", false, true},
	}
	addrs := make([]netip.Addr, len(targets))
	for i, target := range targets {
		addrs[i] = netip.MustParseAddr(target.addr)
	}
	mac := strings.Fields(s.Run("ip", "-o", "link", "show", "eth0.4000"))
	at := slices.Index(mac, "link/ether") + 1
	check := func(by string, want func(int) bool) {
		t.Helper()
		answers := resolveARP(t, s.gateway, "eth0", "10.0.64.77", serverAddr, addrs)
		for i, target := range targets {
			got, answered := answers[addrs[i]]
			if answered != want(i) || answered && got != mac[at] {
				t.Errorf("%s: %s, %s: answered %t by %q, want %t by %s", by, target.addr, target.what, answered, got, want(i), mac[at])
			}
		}
	}
	check("nothing", func(int) bool { return false })
	s.answer(t)
	check("entries", func(i int) bool { return targets[i].entries })
	s.Sysctl("net/ipv4/ip_forward", "0")
	check("entries, not forwarding", func(int) bool { return false })
	s.Sysctl("net/ipv4/ip_forward", "1")
	for _, p := range s.proxies(t) {
		if err := s.kernel.DeleteProxy(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	check("entries, removed", func(int) bool { return false })
	s.Sysctl("net/ipv4/conf/eth0.4000/proxy_arp", "1")
	check("proxy_arp", func(i int) bool { return targets[i].proxyARP })
}

// resolveARP broadcasts a request for each target, and a final one for an address that always
// replies. The kernel replies in order, so a target without a reply by then has none. It returns
// the hardware addresses.
func resolveARP(
	t *testing.T, from *netns.Space, link, source, last string, targets []netip.Addr,
) map[netip.Addr]string {
	t.Helper()
	answers := map[netip.Addr]string{}
	final := netip.MustParseAddr(last)
	var failed error
	from.Do(func() {
		failed = func() error {
			// Packets of one CPU are queued in order; the thread ends with this goroutine.
			var cpu unix.CPUSet
			cpu.Set(0)
			_ = unix.SchedSetaffinity(0, &cpu)
			own, err := net.InterfaceByName(link)
			if err != nil {
				return err
			}
			const arp = unix.ETH_P_ARP<<8&0xff00 | unix.ETH_P_ARP>>8
			fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, arp)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			to := &unix.SockaddrLinklayer{Ifindex: own.Index, Protocol: arp}
			if err := unix.Bind(fd, to); err != nil {
				return err
			}
			if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{
				Sec: 20,
			}); err != nil {
				return err
			}
			for _, target := range append(slices.Clone(targets), final) {
				if err := unix.Sendto(fd, request(own.HardwareAddr, netip.MustParseAddr(source), target), 0,
					to); err != nil {
					return err
				}
			}
			for frame := make([]byte, 1500); ; {
				n, err := unix.Read(fd, frame)
				if err != nil {
					return fmt.Errorf("%s doesn't answer: %w", last, err)
				}
				const reply, length = 2, 42
				if n < length || binary.BigEndian.Uint16(frame[20:]) != reply {
					continue
				}
				who, _ := netip.AddrFromSlice(frame[28:32])
				if who == final {
					return nil
				}
				answers[who] = net.HardwareAddr(slices.Clone(frame[22:28])).String()
			}
		}()
	})
	if failed != nil {
		t.Fatal(failed)
	}
	return answers
}

// request returns an ARP request in an Ethernet frame (RFC 826).
func request(mac net.HardwareAddr, source, target netip.Addr) []byte {
	frame := slices.Concat([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, mac, []byte{8, 6})
	frame = append(frame, 0, 1, 8, 0, 6, 4, 0, 1)
	return slices.Concat(frame, mac, source.AsSlice(), make([]byte, 6), target.AsSlice())
}

func TestProxies(t *testing.T) {
	s := newServer(t)
	all := s.answer(t)
	if found := s.proxies(t); !slices.Equal(found, all) {
		t.Errorf("listed are %v, want %v", found, all)
	}
	if shown := s.Run("ip", "neighbor", "show", "proxy"); strings.Count(shown, "eth0.4000") != len(all) || !strings.Contains(shown, "10.0.96.5 dev eth0.4000 proxy") {
		t.Errorf("the kernel has\n%s", shown)
	}
	if err := s.kernel.AddProxy(t.Context(), all[5]); err != nil {
		t.Errorf("adding what is there: %v", err)
	}
	for range 2 {
		if err := s.kernel.DeleteProxy(t.Context(), all[5]); err != nil {
			t.Errorf("deleting, also what is gone: %v", err)
		}
	}
	s.Run("ip", "neighbor", "add", "proxy", "10.0.96.77", "dev", "eth0.4000")
	found := s.proxies(t)
	if n := len(found); n != len(all) || found[n-1].Addr != netip.MustParseAddr("10.0.96.77") || found[n-1].Ours() || slices.Contains(found, all[5]) {
		t.Errorf("listed are %v", found)
	}
	s.Run("ip", "link", "set", "eth0.4000", "down")
	if found := s.proxies(t); len(found) > 0 {
		t.Errorf("the interface was switched off, and %v are there", found)
	}
	if err := s.kernel.AddProxy(t.Context(), agent.Proxy{Link: 9999, Addr: all[0].Addr}); err == nil {
		t.Error("added to an interface that isn't there")
	}
	if err := s.kernel.DeleteProxy(t.Context(), agent.Proxy{
		Link: 9999, Addr: all[0].Addr,
	}); err != nil {
		t.Errorf("deleting with an interface that is gone: %v", err)
	}
}

// A large podCIDR takes a moment to add once, and little time to list.
func TestProxiesOfALargePodCIDR(t *testing.T) {
	s := newServer(t)
	podCIDR := netip.MustParsePrefix("10.0.96.0/20")
	began, n := time.Now(), 0
	for a := podCIDR.Addr(); podCIDR.Contains(a); a = a.Next() {
		if err := s.kernel.AddProxy(t.Context(), agent.Proxy{
			Link: s.vlan, Addr: a, Protocol: agent.Protocol,
		}); err != nil {
			t.Fatal(err)
		}
		n++
	}
	added := time.Since(began)
	found := s.proxies(t)
	if len(found) != n || n != 4096 {
		t.Errorf("%d of %d are listed", len(found), n)
	}
	t.Logf("%d added in %s, listed in %s", n, added, time.Since(began)-added)
}
