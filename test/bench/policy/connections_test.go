//go:build linux

package policy_test

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

const (
	// A turn is short, so that all paths find the machine in the same state.
	connections, clients = 1000, 2
	turns                = 9
	perSecond            = "new connections"
)

// path leads from pods of other nodes by node-0 to one of its pods, which accepts connections and
// receives datagrams.
type path struct {
	node, far *netns.Space
	to        string
	datagrams net.PacketConn
	tries     *int
}

func newPath(b *testing.B) path {
	b.Helper()
	node, pod, far := netns.New(b), netns.New(b), netns.New(b)
	server, client := firstAddress(0), firstAddress(1)
	netns.Link(node, "veth0", pod, "eth0")
	netns.Link(node, "eth0", far, "eth0")
	node.Sysctl("net/ipv4/ip_forward", "1")
	for _, end := range []struct {
		*netns.Space
		own  netip.Addr
		link string
	}{{pod, server, "veth0"}, {far, client, "eth0"}} {
		end.Run("ip", "address", "add", end.own.String()+"/32", "dev", "eth0")
		end.Run("ip", "route", "add", "default", "dev", "eth0")
		node.Run("ip", "route", "add", end.own.String(), "dev", end.link)
		node.Sysctl("net/ipv4/conf/"+end.link+"/proxy_arp", "1")
	}
	node.Run("ip", "address", "add", nodeAddress(0)+"/32", "dev", "lo")
	// kube-proxy's rules track connections, with policies and without. Ended ones must not fill
	// the kernel's table.
	node.Run("nft", "add table inet kube-proxy; add chain inet kube-proxy c { type filter hook forward priority -10 ; }; add rule inet kube-proxy c ct state new counter")
	node.Sysctl("net/netfilter/nf_conntrack_tcp_timeout_close", "1")
	node.Sysctl("net/netfilter/nf_conntrack_udp_timeout", "1")
	node.Sysctl("net/ipv4/neigh/eth0/proxy_delay", "0")
	p := path{node: node, far: far, tries: new(int), to: netip.AddrPortFrom(server, 8080).String()}
	accept(b, pod, p.to)
	var err error
	pod.Do(func() { p.datagrams, err = net.ListenPacket("udp", netip.AddrPortFrom(server, 53).String()) })
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = p.datagrams.Close() })
	return p
}

// reach gives the far side the address of a further pod.
func (p path) reach(address string) {
	p.far.Run("ip", "address", "add", address+"/32", "dev", "eth0")
	p.node.Run("ip", "route", "add", address, "dev", "eth0")
}

// arrives reports whether the first packet of a connection from an address passes node-0. One of
// the node's own follows, which nothing filters.
func (p path) arrives(b *testing.B, from string) bool {
	b.Helper()
	*p.tries++
	pod, end := fmt.Sprint("pod ", *p.tries), fmt.Sprint("node ", *p.tries)
	send := func(space *netns.Space, from, text string) {
		dialer := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(from)}}
		var err error
		space.Do(func() {
			var conn net.Conn
			if conn, err = dialer.Dial("udp", p.datagrams.LocalAddr().String()); err == nil {
				_, err = conn.Write([]byte(text))
				_ = conn.Close()
			}
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	send(p.far, from, pod)
	send(p.node, "", end)
	arrived, text := false, make([]byte, 20)
	for {
		if err := p.datagrams.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			b.Fatal(err)
		}
		n, _, err := p.datagrams.ReadFrom(text)
		if err != nil {
			b.Fatal(err)
		}
		switch string(text[:n]) {
		case pod:
			arrived = true
		case end:
			return arrived
		}
	}
}

// until returns when packets from an address arrive, or no longer do.
func (p path) until(b *testing.B, from string, arrive bool) {
	b.Helper()
	end := time.Now().Add(10 * time.Minute)
	for p.arrives(b, from) != arrive {
		if time.Now().After(end) {
			b.Fatalf("packets from %s arrive: %t", from, !arrive)
		}
		time.Sleep(time.Millisecond) // the contender needs the processor
	}
}

// accept accepts and closes connections until the benchmark ends.
func accept(b *testing.B, pod *netns.Space, at string) {
	b.Helper()
	var listener net.Listener
	var err error
	if pod.Do(func() { listener, err = net.Listen("tcp", at) }); err != nil {
		b.Fatal(err)
	}
	var ended sync.WaitGroup
	ended.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	})
	b.Cleanup(func() { _ = listener.Close(); ended.Wait() })
}

// connect returns how many connections begin in a second.
func connect(b *testing.B, over path) float64 {
	b.Helper()
	var left atomic.Int64
	left.Store(connections)
	var all sync.WaitGroup
	began := time.Now()
	for range clients {
		all.Go(func() {
			over.far.Do(func() {
				for left.Add(-1) >= 0 {
					conn, err := net.DialTimeout("tcp", over.to, 10*time.Second)
					if err != nil {
						b.Error(err)
						return
					}
					_ = conn.(*net.TCPConn).SetLinger(0) // the port is free at once
					_ = conn.Close()
				}
			})
		})
	}
	all.Wait()
	if b.Failed() {
		b.FailNow()
	}
	return connections / time.Since(began).Seconds()
}
