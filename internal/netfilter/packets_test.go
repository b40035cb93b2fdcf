//go:build linux

package netfilter

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

// segment is a node with a pod, another node, and the outside. The other node's
// pods are addresses of its own.
type segment struct {
	t                  *testing.T
	node               *node
	pod, peer, outside *netns.Space
}

const (
	nodeOutside4, nodeOutside6 = "198.51.100.1", "2001:db8:99::1"
	outside4, outside6         = "198.51.100.9", "2001:db8:99::9"
	pod4, podULA, pod6         = "10.244.1.2", "fd00:1::2", "2001:db8:1:0:1::2"
	peer4, peer6               = "10.0.0.3", "2001:db8:77::3"
	peerPod4, peerPodULA       = "10.244.0.7", "fd00:2::7"
	peerPod6                   = "2001:db8:2:0:1::7"
)

func newSegment(t *testing.T) *segment {
	t.Helper()
	f := &segment{t: t, node: newNode(t), pod: netns.New(t), peer: netns.New(t), outside: netns.New(t)}
	n := f.node
	netns.Link(n.Space, "veth1", f.pod, "eth0")
	netns.Link(n.Space, "eth0", f.outside, "eth0")
	netns.Link(n.Space, "eth1", f.peer, "eth0")
	n.Sysctl("net/ipv4/ip_forward", "1")
	n.Sysctl("net/ipv6/conf/all/forwarding", "1")
	addresses(n.Space, "eth0", nodeOutside4+"/24", nodeOutside6+"/64")
	addresses(n.Space, "eth1", "10.0.0.2/24", "2001:db8:77::2/64")
	addresses(n.Space, "veth1", "10.244.1.1/24", "fd00:1::1/64", "2001:db8:1:0:1::1/80")
	addresses(f.pod, "eth0", pod4+"/24", podULA+"/64", pod6+"/80")
	addresses(f.peer, "eth0", peer4+"/24", peer6+"/64")
	addresses(f.peer, "lo", peerPod4+"/32", peerPodULA+"/128", peerPod6+"/128")
	addresses(f.outside, "eth0", outside4+"/24", outside6+"/64")
	routes(n.Space, peer4, "10.244.0.0/24")
	routes(n.Space, peer6, "fd00:2::/64", "2001:db8:2:0:1::/80")
	routes(f.pod, "10.244.1.1", "default")
	routes(f.pod, "fd00:1::1", "default")
	routes(f.peer, "10.0.0.2", "default")
	routes(f.peer, "2001:db8:77::2", "default")
	// The outside has routes to everything: paths that are closed are filtered.
	routes(f.outside, nodeOutside4, "default")
	routes(f.outside, nodeOutside6, "default")
	return f
}

func addresses(s *netns.Space, link string, all ...string) {
	for _, a := range all {
		args := []string{"address", "add", a, "dev", link}
		if strings.Contains(a, ":") {
			args = append(args, "nodad") // usable at once, not only after a moment
		}
		s.Run("ip", args...)
	}
}

func routes(s *netns.Space, via string, all ...string) {
	family := "-4"
	if netip.MustParseAddr(via).Is6() {
		family = "-6"
	}
	for _, dst := range all {
		s.Run("ip", family, "route", "add", dst, "via", via)
	}
}

// desired are the rules of the node with these podCIDRs.
func (f *segment) desired(podCIDRs ...string) Desired {
	return Desired{
		PodCIDRs:      prefixes(podCIDRs...),
		ClusterPods:   append(prefixes("10.244.0.0/24", "fd00:2::/64", "2001:db8:2:0:1::/80"), prefixes(podCIDRs...)...),
		InternalIPs:   addrs("10.0.0.2", peer4),
		ExternalIPs:   addrs(nodeOutside4, nodeOutside6, peer6),
		FilterInbound: true,
	}
}

// connect opens a connection and returns the client's address that the server observed; empty if
// there is no connection in time. at is the address at which the server listens, if it differs from
// the destination.
func (f *segment) connect(
	client *netns.Space, from string, server *netns.Space, to string, at ...string,
) string {
	f.t.Helper()
	listen := to
	if len(at) > 0 {
		listen = at[0]
	}
	var listener net.Listener
	var conn net.Conn
	var err error
	server.Do(func() { listener, err = net.Listen("tcp", net.JoinHostPort(listen, "80")) })
	if err != nil {
		f.t.Fatal(err)
	}
	defer listener.Close()
	dialer := net.Dialer{Timeout: 3 * time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	client.Do(func() { conn, err = dialer.Dial("tcp", net.JoinHostPort(to, "80")) })
	if err != nil {
		return "nobody"
	}
	defer conn.Close()
	accepted, err := listener.Accept()
	if err != nil {
		f.t.Fatal(err)
	}
	defer accepted.Close()
	return accepted.RemoteAddr().(*net.TCPAddr).IP.String()
}

func (f *segment) expect(what, got, want string) {
	f.t.Helper()
	if got != want {
		f.t.Errorf("%s: the client is taken for %s, want %s", what, got, want)
	}
}

func TestPodsLeaveWithTheirKnownSources(t *testing.T) {
	f := newSegment(t)
	f.node.apply(f.desired("10.244.1.0/24", "fd00:1::/64"))
	f.expect("pod to outside, IPv4", f.connect(f.pod, pod4, f.outside, outside4), nodeOutside4)
	f.expect("pod to outside, unique local IPv6", f.connect(f.pod, podULA, f.outside, outside6), nodeOutside6)
	f.expect("pod to pod, IPv4", f.connect(f.pod, pod4, f.peer, peerPod4), pod4)
	f.expect("pod to pod, unique local IPv6", f.connect(f.pod, podULA, f.peer, peerPodULA), podULA)
	f.expect("pod to another node", f.connect(f.pod, pod4, f.peer, peer4), pod4)
	f.expect("pod to another node's external address", f.connect(f.pod, podULA, f.peer, peer6), "2001:db8:77::2")
	f.expect("pod to its node", f.connect(f.pod, pod4, f.node.Space, "10.0.0.2"), pod4)
	f.expect("node to its pod", f.connect(f.node.Space, "10.244.1.1", f.pod, pod4), "10.244.1.1")
	f.expect("another node's pod passing through", f.connect(f.peer, peerPod4, f.outside, outside4), peerPod4)

	// Another node joins, whose address was outside of the cluster.
	want := f.desired("10.244.1.0/24", "fd00:1::/64")
	want.InternalIPs = append(want.InternalIPs, netip.MustParseAddr(outside4))
	f.node.apply(want)
	f.expect("pod to a node that joined", f.connect(f.pod, pod4, f.outside, outside4), pod4)
}

// A neighbor on the segment, or a machine in a vSwitch that is no Node, could reach a private
// podCIDR by a route of its own.
func TestStrangersReachNoPod(t *testing.T) {
	f := newSegment(t)
	want := f.desired("10.244.1.0/24", "2001:db8:1:0:1::/80")
	f.expect("without rules", f.connect(f.outside, outside6, f.pod, pod6), outside6)
	f.node.apply(want)
	f.expect("outside to pod", f.connect(f.outside, outside6, f.pod, pod6), "nobody")
	f.expect("pod to outside, and its replies", f.connect(f.pod, pod6, f.outside, outside6), pod6)
	f.expect("pod to pod", f.connect(f.peer, peerPod6, f.pod, pod6), peerPod6)
	f.expect("another node to pod", f.connect(f.peer, peer6, f.pod, pod6), peer6)
	f.expect("its node to pod", f.connect(f.node.Space, "2001:db8:1:0:1::1", f.pod, pod6), "2001:db8:1:0:1::1")
	f.expect("outside to a private pod", f.connect(f.outside, outside4, f.pod, pod4), "nobody")
	f.expect("another node to a private pod", f.connect(f.peer, peer4, f.pod, pod4), peer4)
	f.expect("pod to a private pod", f.connect(f.peer, peerPod4, f.pod, pod4), peerPod4)
	want.AllowedInbound = prefixes(outside4 + "/32")
	f.node.apply(want)
	f.expect("allowed outside to a private pod", f.connect(f.outside, outside4, f.pod, pod4), outside4)
	f.expect("outside of the other family", f.connect(f.outside, outside6, f.pod, pod6), "nobody")

	// As kube-proxy forwards a node port's client to a pod.
	f.node.Run("nft", "add table inet proxy; add chain inet proxy in { type nat hook prerouting priority dstnat ; }; "+
		"add rule inet proxy in ip6 daddr "+nodeOutside6+" tcp dport 80 dnat ip6 to ["+pod6+"]:80")
	f.expect("outside to pod through a node port", f.connect(f.outside, outside6, f.pod, nodeOutside6, pod6), outside6)

	want.FilterInbound = false
	f.node.apply(want)
	f.expect("outside to pod, the filter switched off", f.connect(f.outside, outside6, f.pod, pod6), outside6)
	want.FilterInbound = true
	f.node.apply(want)
	f.expect("outside to pod, the filter switched on again", f.connect(f.outside, outside6, f.pod, pod6), "nobody")
	f.node.cleanup()
	f.expect("after cleanup", f.connect(f.outside, outside6, f.pod, pod6), outside6)
}

// A pod is open to the sources of its opening, on that port; established connections remain when
// the opening is removed, also when the table is recreated.
func TestOpenPodsAreReached(t *testing.T) {
	f := newSegment(t)
	want := f.desired("10.244.1.0/24", "2001:db8:1:0:1::/80")
	f.node.apply(want)
	want.Openings = openings(outside6+"/128", "["+pod6+"]:80")
	f.node.apply(want)
	f.expect("open", f.connect(f.outside, outside6, f.pod, pod6), outside6)
	stays := f.open(f.outside, outside6, f.pod, pod6)
	stays.expect("connected")

	f.node.Run("nft", "delete", "table", "inet", "underlay")
	if changed := f.node.apply(want); len(changed) != 1 {
		t.Errorf("the table made anew: %q", changed)
	}
	stays.expect("connected while the table was made anew")
	if n := strings.Count(f.node.Run("conntrack", "-L", "-f", "ipv6"), "dport=80 "); n == 0 {
		t.Error("the connection that is open is forgotten")
	}

	for what, open := range map[string][]Opening{
		"another source, port and pod are open": slices.Concat(openings("2001:db8:99::8/128", "["+pod6+"]:80"),
			openings(outside6+"/128", "["+pod6+"]:81", "[2001:db8:1:0:1::3]:80")),
		"nothing is open": nil,
	} {
		want.Openings = open
		f.node.apply(want)
		f.expect(what, f.connect(f.outside, outside6, f.pod, pod6), "nobody")
		stays.expect(what + ", connected before")
	}
	want.Openings = openings("2001:db8:99::/64", "["+pod6+"]:80")
	f.node.apply(want)
	f.expect("open to a prefix", f.connect(f.outside, outside6, f.pod, pod6), outside6)
}

// Connections to an open pod are opened continuously, while other openings are added and removed:
// none of their first packets is dropped. A drop would only cause a delay, because the packet is
// retransmitted, so packets are counted before and behind the filter.
func TestOpeningsStayOpenDuringEdits(t *testing.T) {
	f := newSegment(t)
	want := f.desired("10.244.1.0/24", "2001:db8:1:0:1::/80")
	open := openings(outside6+"/128", "["+pod6+"]:80")
	want.Openings = open
	f.node.apply(want)
	const first = "ip6 daddr " + pod6 + " tcp flags & (syn | ack) == syn counter"
	f.node.Run("nft", "add table inet count; "+
		"add chain inet count before { type filter hook forward priority -10 ; }; add rule inet count before "+first+"; "+
		"add chain inet count behind { type filter hook forward priority 10 ; }; add rule inet count behind "+first)

	var listener net.Listener
	var err error
	f.pod.Do(func() { listener, err = net.Listen("tcp", net.JoinHostPort(pod6, "80")) })
	if err != nil {
		t.Fatal(err)
	}
	var serving, asking sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	})
	stop, began := make(chan struct{}), 0
	asking.Go(func() {
		f.outside.Do(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				c, err := net.Dial("tcp", net.JoinHostPort(pod6, "80"))
				if err != nil {
					t.Errorf("connection %d: %v", began, err)
					return
				}
				began++
				_ = c.Close()
			}
		})
	})
	for i := range 60 {
		want.Openings = open
		if i%2 == 0 {
			want.Openings = append(openings("2001:db8:f::/64 "+outside6+"/128", "[2001:db8:1:0:1::9]:80", "["+pod6+"]:81"), open...)
		}
		if changed := f.node.apply(want); len(changed) != 1 {
			t.Errorf("edit %d: %q", i, changed)
		}
	}
	close(stop)
	asking.Wait()
	_ = listener.Close()
	serving.Wait()
	counts := regexp.MustCompile(`counter packets (\d+) `).FindAllStringSubmatch(f.node.Run("nft", "list", "table", "inet", "count"), -1)
	if len(counts) != 2 || counts[0][1] != counts[1][1] || began < 100 {
		t.Errorf("%d connections began, packets before the filter and behind it are %v", began, counts)
	}
}

// conversation is a long connection.
type conversation struct {
	t              *testing.T
	client, server net.Conn
}

func (f *segment) open(
	client *netns.Space, from string, server *netns.Space, to string,
) *conversation {
	f.t.Helper()
	c := &conversation{t: f.t}
	var listener net.Listener
	var err error
	server.Do(func() { listener, err = net.Listen("tcp", net.JoinHostPort(to, "80")) })
	if err != nil {
		f.t.Fatal(err)
	}
	defer listener.Close()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	client.Do(func() { c.client, err = dialer.Dial("tcp", net.JoinHostPort(to, "80")) })
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = c.client.Close() })
	if c.server, err = listener.Accept(); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = c.server.Close() })
	return c
}

// expect sends a byte each way.
func (c *conversation) expect(what string) {
	c.t.Helper()
	for _, way := range [][2]net.Conn{{c.client, c.server}, {c.server, c.client}} {
		_ = way[1].SetReadDeadline(time.Now().Add(3 * time.Second))
		_, err := way[0].Write([]byte("x"))
		if _, lost := way[1].Read(make([]byte, 1)); err != nil || lost != nil {
			c.t.Errorf("%s: %v, %v", what, err, lost)
		}
	}
}

// Datagrams of many clients are sent while the rules change repeatedly: none leaves with the pod's
// address, none is lost. A packet that passes while the table is recreated is rare, so it takes
// tens of thousands to detect one.
func TestNoPacketSlipsThroughAChange(t *testing.T) {
	f := newSegment(t)
	want := f.desired("10.244.1.0/24", "2001:db8:1:0:1::/80")
	f.node.apply(want)
	var server net.PacketConn
	var err error
	f.outside.Do(func() { server, err = net.ListenPacket("udp4", outside4+":9") })
	if err != nil {
		t.Fatal(err)
	}
	sources := map[string]int{}
	var reading sync.WaitGroup
	reading.Go(func() {
		buffer := make([]byte, 16)
		for {
			_, from, err := server.ReadFrom(buffer)
			if err != nil {
				return
			}
			sources[from.(*net.UDPAddr).IP.String()]++
			if _, err := server.WriteTo(buffer[:1], from); err != nil {
				t.Errorf("the reply: %v", err)
			}
		}
	})
	stop, sent, sending := make(chan struct{}), 0, sync.WaitGroup{}
	sending.Go(func() {
		f.pod.Do(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				conn, err := net.Dial("udp4", outside4+":9")
				if err != nil {
					t.Errorf("the pod can't send: %v", err)
					return
				}
				_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
				_, err = fmt.Fprint(conn, "x")
				if _, lost := conn.Read(make([]byte, 1)); err != nil || lost != nil {
					t.Errorf("datagram %d: %v, its reply: %v", sent, err, lost)
				}
				sent++
				conn.Close()
			}
		})
	})
	for i := range 40 {
		want.FilterInbound = i%2 == 1
		if changed := f.node.apply(want); len(changed) != 1 {
			t.Errorf("nothing was changed: %q", changed)
		}
	}
	close(stop)
	sending.Wait()
	server.Close()
	reading.Wait()
	if sent < 100 || sources[nodeOutside4] != sent || len(sources) != 1 {
		t.Errorf("%d datagrams sent, they came from %v, want all from %s", sent, sources, nodeOutside4)
	}
}
