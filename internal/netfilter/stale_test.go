//go:build linux

package netfilter

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestStaleConnections(t *testing.T) {
	s := stalenessOf(Desired{
		PodCIDRs:       prefixes("10.244.1.0/24", "2001:db8:1:0:1::/80"),
		ClusterPods:    prefixes("10.244.0.0/16", "2001:db8:1:0:1::/80", "2001:db8:2:0:1::/80"),
		InternalIPs:    addrs("10.0.0.2", "10.0.0.3"),
		ExternalIPs:    addrs("2001:db8:77::3"),
		ServerPrefixes: prefixes("2001:db8:2::/64"),
		FilterInbound:  true,
		AllowedInbound: prefixes("192.0.2.0/24"),
	})
	const service = "10.96.0.1"
	for _, c := range []struct {
		what                         string
		from, to, replyFrom, replyTo string
		stale                        bool
	}{
		{"to the outside as the pod", pod4, outside4, outside4, pod4, true},
		{"to the outside as the node", pod4, outside4, outside4, nodeOutside4, false},
		{"to a pod of another node", pod4, "10.244.2.7", "10.244.2.7", pod4, false},
		{"to another node", pod4, "10.0.0.3", "10.0.0.3", pod4, false},
		{"to a Service with a pod behind it", pod4, service, "10.244.2.7", pod4, false},
		{"to a Service with the outside behind it", pod4, service, outside4, pod4, true},
		{"of the node itself", "10.0.0.2", outside4, outside4, "10.0.0.2", false},
		{"of another node's pod", "10.244.2.7", outside4, outside4, "10.244.2.7", false},
		{"from a stranger", outside6, pod6, pod6, outside6, true},
		{"from a stranger, redirected to the pod", outside6, "2001:db8:99::1", pod6, outside6, false},
		{"from a pod of another node", "2001:db8:2:0:1::7", pod6, pod6, "2001:db8:2:0:1::7", false},
		{"from another node", "2001:db8:77::3", pod6, pod6, "2001:db8:77::3", false},
		{"from another address of its machine", "2001:db8:2::5", pod6, pod6, "2001:db8:2::5", false},
		{"from a stranger to a private address", outside4, pod4, pod4, outside4, true},
		{"from another node to a private address", "10.0.0.3", pod4, pod4, "10.0.0.3", false},
		{"from where it is allowed", "192.0.2.9", pod4, pod4, "192.0.2.9", false},
		{"begun by the pod", pod6, outside6, outside6, pod6, false},
	} {
		a := netip.MustParseAddr
		if got := s.stale(connection{
			a(c.from), a(c.to), a(c.replyFrom), a(c.replyTo), 0,
		}); got != c.stale {
			t.Errorf("%s: stale %t, want %t", c.what, got, c.stale)
		}
	}
}

func TestOpenConnectionsAreNotStale(t *testing.T) {
	const balancer, pod = "2001:db8:f::2", pod6
	s := stalenessOf(Desired{
		PodCIDRs: prefixes("2001:db8:1:0:1::/80"), FilterInbound: true,
		Openings: openings("2001:db8:f::/64", "["+pod+"]:80"),
	})
	for _, c := range []struct {
		what  string
		from  string
		to    string
		port  uint16
		stale bool
	}{
		{"from the load balancer", balancer, pod, 80, false},
		{"to another port", balancer, pod, 81, true},
		{"over another protocol", balancer, pod, 0, true},
		{"to another pod", balancer, "2001:db8:1:0:1::3", 80, true},
		{"from a stranger", outside6, pod, 80, true},
	} {
		from, to := netip.MustParseAddr(c.from), netip.MustParseAddr(c.to)
		if got := s.stale(connection{from, to, to, from, c.port}); got != c.stale {
			t.Errorf("%s: stale %t, want %t", c.what, got, c.stale)
		}
	}
}

// flow is UDP from one address and port to another, with replies.
type flow struct {
	t              *testing.T
	client, server net.PacketConn
	to             net.Addr
}

func (f *segment) flow(
	client interface{ Do(func()) }, from string, server interface{ Do(func()) }, to string,
) *flow {
	f.t.Helper()
	fl := &flow{t: f.t, to: &net.UDPAddr{IP: net.ParseIP(to), Port: 4000}}
	listen := func(address string) (c net.PacketConn) {
		c, err := net.ListenPacket("udp", net.JoinHostPort(address, "4000"))
		if err != nil {
			f.t.Error(err)
			return nil
		}
		f.t.Cleanup(func() { _ = c.Close() })
		return c
	}
	client.Do(func() { fl.client = listen(from) })
	server.Do(func() { fl.server = listen(to) })
	if f.t.Failed() {
		f.t.FailNow()
	}
	return fl
}

// exchange sends a packet and returns its source as observed by the server; the server replies.
func (f *flow) exchange() string {
	f.t.Helper()
	buffer := make([]byte, 16)
	if _, err := f.client.WriteTo([]byte("hello"), f.to); err != nil {
		f.t.Fatal(err)
	}
	_ = f.server.SetReadDeadline(time.Now().Add(3 * time.Second))
	n, from, err := f.server.ReadFrom(buffer)
	if err != nil {
		return "nobody"
	}
	if _, err := f.server.WriteTo(buffer[:n], from); err != nil {
		f.t.Fatal(err)
	}
	_ = f.client.SetReadDeadline(time.Now().Add(3 * time.Second))
	if _, _, err := f.client.ReadFrom(buffer); err != nil {
		f.t.Errorf("no answer: %v", err)
	}
	return from.(*net.UDPAddr).IP.String()
}

// A flow that began before the table, and never pauses, leaves with the node's address once the
// table exists. An external host's flow is closed. Flows that the table doesn't change continue.
func TestFlowsThatBeganBeforeTheTable(t *testing.T) {
	f := newSegment(t)
	// As with kube-proxy, something tracks connections and decides on NAT.
	f.node.Run("nft", "add table inet services; add chain inet services post { type nat hook postrouting priority 100 ; }; add rule inet services post ct state established accept")
	leaving := f.flow(f.pod, pod4, f.outside, outside4)
	entering := f.flow(f.outside, outside6, f.pod, pod6)
	toPeer := f.flow(f.pod, podULA, f.peer, peerPodULA)
	f.expect("before the table, to the outside", leaving.exchange(), pod4)
	f.expect("before the table, from a stranger", entering.exchange(), outside6)
	f.expect("before the table, to a peer", toPeer.exchange(), podULA)
	tracked := func(family string, words ...string) bool {
		for line := range strings.Lines(f.node.Run("conntrack", "-L", "-f", family, "-o", "id")) {
			if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
				return true
			}
		}
		return false
	}
	var changed []string
	var err error
	f.node.Do(func() {
		changed, _, err = f.node.table.Apply(t.Context(), f.desired("10.244.1.0/24", "fd00:1::/64", "2001:db8:1:0:1::/80"))
	})
	if err != nil || len(changed) != 2 || !strings.HasPrefix(changed[1], "2 connections") {
		t.Errorf("%q, %v", changed, err)
	}
	if !tracked("ipv6", "src="+podULA+" ", "dst="+peerPodULA+" ") {
		t.Error("the connection to a peer's pod is forgotten")
	}
	f.expect("to the outside", leaving.exchange(), nodeOutside4)
	f.expect("from a stranger", entering.exchange(), "nobody")
	f.expect("to a peer", toPeer.exchange(), podULA)
}
