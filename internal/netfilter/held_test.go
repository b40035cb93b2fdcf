//go:build linux

package netfilter

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

// Addresses that the node holds for Services, on the segment with the outside.
const held4, held6 = "198.51.100.50", "2001:db8:99::50"

// holding makes the outside resolve the held addresses to the node, as an ARP reply would, and
// forwards two of their ports to pods, as kube-proxy does: 80 to the node's own with the client's
// address, 81 to another node's with the node's.
func (f *segment) holding() {
	_, mac, _ := strings.Cut(f.node.Run("ip", "-o", "link", "show", "eth0"), "link/ether ")
	mac, _, _ = strings.Cut(mac, " ")
	for _, held := range []string{held4, held6} {
		f.outside.Run("ip", "neighbor", "replace", held, "lladdr", mac, "dev", "eth0", "nud", "permanent")
	}
	f.node.Run("nft", "add table inet proxy; "+
		"add chain inet proxy in { type nat hook prerouting priority dstnat ; }; "+
		"add chain inet proxy out { type nat hook postrouting priority srcnat ; }; "+
		"add rule inet proxy in ip daddr "+held4+" tcp dport 80 dnat ip to "+pod4+":80; "+
		"add rule inet proxy in ip6 daddr "+held6+" tcp dport 80 dnat ip6 to ["+pod6+"]:80; "+
		"add rule inet proxy in ip daddr "+held4+" tcp dport 81 mark set 1 dnat ip to "+peerPod4+":80; "+
		"add rule inet proxy in ip6 daddr "+held6+" tcp dport 81 mark set 1 dnat ip6 to ["+peerPod6+"]:80; "+
		"add rule inet proxy out mark 1 masquerade")
}

// dial connects from the outside and returns the duration and the error.
func (f *segment) dial(network, to, port string) (took time.Duration, err error) {
	began := time.Now()
	f.outside.Do(func() {
		var conn net.Conn
		if conn, err = net.DialTimeout(network, net.JoinHostPort(to, port), 5*time.Second); err != nil {
			return
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
		if _, err = conn.Write([]byte("x")); err == nil {
			_, err = conn.Read(make([]byte, 1))
		}
	})
	return time.Since(began), err
}

// Packets that kube-proxy redirects arrive as without our table, also with a strict reverse path
// filter; others are rejected at once, not dropped silently.
func TestHeldAddressesServeServicesAndNothingElse(t *testing.T) {
	f := newSegment(t)
	for _, link := range []string{"all", "eth0", "eth1", "veth1"} {
		f.node.Sysctl("net/ipv4/conf/"+link+"/rp_filter", "1")
	}
	f.holding()
	want := f.desired("10.244.1.0/24", "2001:db8:1:0:1::/80")
	want.RefuseHeld, want.Held = true, addrs(held4, held6)
	f.node.apply(want)

	through := func(server *netns.Space, to, port, at string) string {
		return f.connectPort(f.outside, server, net.JoinHostPort(to, port), net.JoinHostPort(at, "80"))
	}
	f.expect("own pod", through(f.pod, held4, "80", pod4), outside4)
	f.expect("own pod, IPv6", through(f.pod, held6, "80", pod6), outside6)
	f.expect("another node's pod", through(f.peer, held4, "81", peerPod4), "10.0.0.2")
	f.expect("another node's pod, IPv6", through(f.peer, held6, "81", peerPod6), "2001:db8:77::2")

	want.Served = endpoints(held4, held6, 80, 81, 83)
	f.node.apply(want)
	f.expect("own pod, its port known", through(f.pod, held4, "80", pod4), outside4)
	for _, held := range []string{held4, held6} {
		for _, network := range []string{"tcp", "udp"} {
			took, err := f.dial(network, held, "82")
			if !errors.Is(err, syscall.ECONNREFUSED) || took > time.Second {
				t.Errorf("%s to a port of %s that no Service has: %v after %s, want it refused at once", network, held, err, took)
			}
		}
	}
	f.node.restart()
	if changed := f.node.apply(want); len(changed) > 0 {
		t.Errorf("a process that begins finds other rules than it would make: %q", changed)
	}
	want.Held = addrs(held6)
	if changed := f.node.apply(want); !slices.Equal(changed, []string{"nftables set held-4 of table underlay: 0 prefixes added, 1 removed"}) {
		t.Errorf("an address that goes: %q", changed)
	}
	if elements := f.node.Run("nft", "list", "set", "inet", "underlay", "held-6"); !strings.Contains(elements, held6) {
		t.Errorf("the other one is gone: %s", elements)
	}
	want.Served = want.Served[1:]
	if changed := f.node.apply(want); !slices.Equal(changed, []string{"nftables set served-4 of table underlay: 0 ports added, 1 removed"}) {
		t.Errorf("a port that goes: %q", changed)
	}
	want.RefuseHeld, want.Held, want.Served = false, nil, nil
	f.node.apply(want)
	if rules := f.node.Run("nft", "list", "table", "inet", "underlay"); strings.Contains(rules, "held") {
		t.Errorf("where no addresses are held there is: %s", rules)
	}
}

// With policy Local a connection may arrive before kube-proxy has a rule for the local pod: it is
// neither rejected nor forwarded, and is served when its first packet is retransmitted.
func TestServedPortsAreNotRejectedTooEarly(t *testing.T) {
	f := newSegment(t)
	f.holding()
	want := f.desired("10.244.1.0/24", "2001:db8:1:0:1::/80")
	want.RefuseHeld, want.Held, want.Served = true, addrs(held4, held6), endpoints(held4, held6, 83)
	f.node.apply(want)
	for _, to := range [][2]string{{held4, pod4}, {held6, pod6}} {
		served := make(chan string)
		go func() {
			served <- f.connectPort(f.outside, f.pod, net.JoinHostPort(to[0], "83"), net.JoinHostPort(to[1], "80"))
		}()
		family := map[bool]string{true: "ip6", false: "ip"}[strings.Contains(to[0], ":")]
		f.arrives(family + " daddr " + to[0] + " tcp dport 83")
		f.node.Run("nft", fmt.Sprintf("add rule inet proxy in %s daddr %s tcp dport 83 dnat %s to %s", family, to[0], family, net.JoinHostPort(to[1], "80")))
		if who := <-served; who == "nobody" {
			t.Errorf("a connection to %s before kube-proxy has its rules fails for good", to[0])
		}
	}
}

// arrives waits until a packet that matches a rule's expression has reached the node.
func (f *segment) arrives(words string) {
	f.t.Helper()
	f.node.Run("nft", "add table inet seen; add chain inet seen in { type filter hook prerouting priority raw ; }; flush chain inet seen in; add rule inet seen in "+words+" counter")
	deadline := time.Now().Add(20 * time.Second)
	for strings.Contains(f.node.Run("nft", "list", "table", "inet", "seen"), "packets 0 ") {
		if time.Now().After(deadline) {
			f.t.Fatalf("no packet comes: %s", words)
		}
		time.Sleep(5 * time.Millisecond) // counters don't notify
	}
}

// endpoints returns the ports of two addresses, those of the first one first.
func endpoints(one, two string, ports ...uint16) (all []netip.AddrPort) {
	for _, a := range addrs(one, two) {
		for _, p := range ports {
			all = append(all, netip.AddrPortFrom(a, p))
		}
	}
	return all
}

// Neighbors probe a held address directly once they have it cached. A user-space program replies:
// the kernel neither forwards nor rejects the probe.
func TestHeldAddressesAreProbedByNeighbors(t *testing.T) {
	f := newSegment(t)
	f.holding()
	want := f.desired("10.244.1.0/24", "2001:db8:1:0:1::/80")
	want.RefuseHeld, want.Held = true, addrs(held4, held6)
	f.node.apply(want)
	counters := func() string {
		return f.node.Run("sh", "-c", "grep -E 'Icmp6OutDestUnreachs|Ip6OutForwDatagrams' /proc/net/snmp6")
	}
	before := counters()
	_, mac, _ := strings.Cut(f.node.Run("ip", "-o", "link", "show", "eth0"), "link/ether ")
	mac, _, _ = strings.Cut(mac, " ")
	f.outside.Run("ip", "neighbor", "replace", held6, "lladdr", mac, "dev", "eth0", "nud", "probe")
	deadline := time.Now().Add(20 * time.Second)
	for !strings.Contains(f.outside.Run("ip", "neighbor", "show", held6), "FAILED") {
		if time.Now().After(deadline) {
			t.Fatalf("the neighbor asks on: %s", f.outside.Run("ip", "neighbor", "show", held6))
		}
		time.Sleep(50 * time.Millisecond) // the kernel probes once a second
	}
	if after := counters(); after != before {
		t.Errorf("the kernel did something about what it was not asked:\n%s\nbefore:\n%s", after, before)
	}
}

// connectPort is connect with ports.
func (f *segment) connectPort(client, server *netns.Space, to, at string) string {
	f.t.Helper()
	var listener net.Listener
	var conn net.Conn
	var err error
	server.Do(func() { listener, err = net.Listen("tcp", at) })
	if err != nil {
		f.t.Fatal(err)
	}
	defer listener.Close()
	client.Do(func() { conn, err = net.DialTimeout("tcp", to, 3*time.Second) })
	if err != nil {
		return "nobody"
	}
	defer conn.Close()
	accepted, err := listener.Accept()
	if err != nil {
		f.t.Fatal(err)
	}
	defer accepted.Close()
	return netip.MustParseAddrPort(accepted.RemoteAddr().String()).Addr().String()
}
