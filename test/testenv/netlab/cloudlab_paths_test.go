//go:build linux

package netlab_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"golang.org/x/sys/unix"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/internal/ipnet"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

// run runs a command in a namespace.
func (l *lab) run(ns *netns.Namespace, command string, args ...any) {
	l.t.Helper()
	words := strings.Fields(fmt.Sprintf(command, args...))
	_, err := ns.Run(l.t.Context(), words[0], words[1:]...)
	noError(l.t, err)
}

// arrives reports whether a packet of a size, including its headers, is delivered between two
// namespaces without fragmentation. A small packet follows on the same path and marks the end of
// the wait.
func (l *lab) arrives(
	from netip.Addr, out *netns.Namespace, to netip.Addr, in *netns.Namespace, size int,
) bool {
	l.t.Helper()
	sender, receiver := l.socket(out, from), l.socket(in, to)
	defer sender.Close()
	defer receiver.Close()
	headers := 28
	if to.Is6() {
		headers = 48
	}
	address := receiver.LocalAddr()
	_, err := sender.WriteTo(make([]byte, size-headers), address)
	noError(l.t, err)
	_, err = sender.WriteTo([]byte{1}, address)
	noError(l.t, err)
	noError(l.t, receiver.SetReadDeadline(time.Now().Add(5*time.Second)))
	n, _, err := receiver.ReadFrom(make([]byte, 1<<16))
	noError(l.t, err)
	return n > 1
}

// socket returns a UDP socket whose packets are never fragmented, whatever path MTU is cached.
func (l *lab) socket(ns *netns.Namespace, at netip.Addr) net.PacketConn {
	l.t.Helper()
	conn, err := ns.ListenPacket(l.t.Context(), "udp", netip.AddrPortFrom(at, 0).String())
	noError(l.t, err)
	raw, err := conn.(*net.UDPConn).SyscallConn()
	noError(l.t, err)
	level, option := unix.IPPROTO_IP, unix.IP_MTU_DISCOVER
	if at.Is6() {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER
	}
	var failed error
	noError(l.t, raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), level, option, unix.IP_PMTUDISC_PROBE)
	}))
	noError(l.t, failed)
	return conn
}

// largest checks that packets up to a size are delivered.
func (l *lab) largest(
	what string, from netip.Addr, out *netns.Namespace, to netip.Addr, in *netns.Namespace, want int,
) {
	l.t.Helper()
	if !l.arrives(from, out, to, in, want) {
		l.t.Errorf("%s: %d bytes don't arrive", what, want)
	}
	if l.arrives(from, out, to, in, want+1) {
		l.t.Errorf("%s: %d bytes arrive, the most is %d", what, want+1, want)
	}
}

// The profile limits the size of packets, whatever the MTUs of servers' interfaces, and packets
// with a foreign source are dropped unless the profile allows them.
func TestPathsFollowTheProfile(t *testing.T) {
	for _, c := range []struct {
		name            string
		network         profile.Network
		private, public int
		anySource       bool
	}{
		{name: "default", private: 1450, public: 1500},
		{name: "narrow", network: profile.Network{PrivateMTU: new(1400), PublicMTU: new(1300)}, private: 1400, public: 1300},
		{
			name: "wide", network: profile.Network{PrivateMTU: new(1500), PublicMTU: new(1600), AnySource: new(true)},
			private: 1500, public: 1600, anySource: true,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := startLab(t, netlab.CloudLabOptions{Network: c.network})
			n := l.network("10.0.0.0/8", "10.1.0.0/24")
			a, b := l.server(hcloud.ServerCreateOpts{Name: "a"}, n), l.server(hcloud.ServerCreateOpts{Name: "b"}, n)
			inA, inB := l.Server(a.ID), l.Server(b.ID)
			for _, ns := range []*netns.Namespace{inA, inB} {
				l.run(ns, "ip link set eth0 mtu 9000")
				l.run(ns, "ip link set enp7s0 mtu 9000")
			}
			l.largest("private", inside(a, 0), inA, inside(b, 0), inB, c.private)
			l.largest("public", ipv4(a), inA, ipv4(b), inB, c.public)
			l.largest("public, IPv6", ipv6(a), inA, ipv6(b), inB, c.public)

			foreign := netip.MustParseAddr("10.77.0.1")
			l.run(inA, "ip address add %s/32 dev lo", foreign)
			if got := l.passes(inA, foreign, inB, inside(b, 0)); got != c.anySource {
				t.Errorf("a packet from %s, which is nobody's, arrives: %v, want %v", foreign, got, c.anySource)
			}
			l.route(n, foreign, inside(a, 0))
			if !l.passes(inA, foreign, inB, inside(b, 0)) {
				t.Errorf("a packet from %s, which is routed to a, doesn't arrive", foreign)
			}
		})
	}
}

// passes reports whether a packet with another source arrives before a later one with the sender's
// own source.
func (l *lab) passes(
	out *netns.Namespace, from netip.Addr, in *netns.Namespace, to netip.Addr,
) bool {
	l.t.Helper()
	receiver := l.socket(in, to)
	defer receiver.Close()
	for _, source := range []netip.Addr{from, {}} {
		at := ":0"
		if source.IsValid() {
			at = netip.AddrPortFrom(source, 0).String()
		}
		sender, err := out.ListenPacket(l.t.Context(), "udp", at)
		noError(l.t, err)
		defer sender.Close()
		_, err = sender.WriteTo([]byte("?"), receiver.LocalAddr())
		noError(l.t, err)
	}
	noError(l.t, receiver.SetReadDeadline(time.Now().Add(5*time.Second)))
	_, came, err := receiver.ReadFrom(make([]byte, 1))
	noError(l.t, err)
	return came.(*net.UDPAddr).AddrPort().Addr() == from
}

func (l *lab) route(n *hcloud.Network, to, via netip.Addr) {
	l.t.Helper()
	action, _, err := l.cloud.Network.AddRoute(l.t.Context(), n,
		hcloud.NetworkAddRouteOpts{Route: hcloud.NetworkRoute{
			Destination: ipNet(to.String() + "/32"), Gateway: via.AsSlice(),
		}})
	noError(l.t, err)
	l.done(action)
}

// A route takes effect when its action ends, or earlier or later by the delay of the profile.
func TestRoutesLeadLate(t *testing.T) {
	const takes = time.Second
	for _, late := range []time.Duration{-takes, 0, time.Second} {
		t.Run(late.String(), func(t *testing.T) {
			l := startLab(t, netlab.CloudLabOptions{
				Cloud:   hcloudsim.Options{ActionTimes: map[string][]time.Duration{"add_route": {takes}}},
				Network: profile.Network{RouteSeconds: []float64{late.Seconds()}},
			})
			n := l.network("10.0.0.0/8", "10.1.0.0/24")
			a, b := l.server(hcloud.ServerCreateOpts{Name: "a"}, n), l.server(hcloud.ServerCreateOpts{Name: "b"}, n)
			far := netip.MustParseAddr("10.77.0.1")
			l.run(l.Server(b.ID), "ip address add %s/32 dev lo", far)
			arrival := l.firstPacket(l.Server(a.ID), far, l.Server(b.ID))
			began := time.Now()
			_, _, err := l.cloud.Network.AddRoute(t.Context(), n,
				hcloud.NetworkAddRouteOpts{Route: hcloud.NetworkRoute{
					Destination: ipNet(far.String() + "/32"), Gateway: inside(b, 0).AsSlice(),
				}})
			noError(t, err)
			if took := arrival().Sub(began) - takes; took < late || took > late+900*time.Millisecond {
				t.Errorf("the route leads %s after its action has ended, want %s", took, late)
			}
		})
	}
}

// firstPacket sends packets to an address until arrival returns when the first of them was
// received.
func (l *lab) firstPacket(
	out *netns.Namespace, to netip.Addr, in *netns.Namespace,
) (arrival func() time.Time) {
	l.t.Helper()
	receiver := l.socket(in, to)
	sender, err := out.ListenPacket(l.t.Context(), "udp", ":0")
	noError(l.t, err)
	ctx, stop := context.WithCancel(l.t.Context())
	var sending sync.WaitGroup
	sending.Go(func() {
		for tick := time.NewTicker(20 * time.Millisecond); ctx.Err() == nil; {
			_, _ = sender.WriteTo([]byte("?"), receiver.LocalAddr()) // there is no route yet
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	return func() time.Time {
		l.t.Helper()
		noError(l.t, receiver.SetReadDeadline(time.Now().Add(10*time.Second)))
		_, _, err := receiver.ReadFrom(make([]byte, 1))
		at := time.Now()
		stop()
		sending.Wait()
		noError(l.t, errors.Join(err, sender.Close(), receiver.Close()))
		return at
	}
}

// Load balancers reach servers at public addresses, in the network, and at an IPv6 address within
// the server's own prefix.
func TestLoadBalancersReachServers(t *testing.T) {
	l := startLab(t, netlab.CloudLabOptions{Cloud: hcloudsim.Options{ServeUnjudged: true}})
	n := l.network("10.0.0.0/8", "10.1.0.0/24")
	a := l.server(hcloud.ServerCreateOpts{Name: "a"}, n)
	l.serve("a", l.Server(a.ID))
	made, _, err := l.cloud.LoadBalancer.Create(t.Context(), hcloud.LoadBalancerCreateOpts{
		Name: "lb", LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, NetworkZone: hcloud.NetworkZoneEUCentral, Network: n,
		Services: []hcloud.LoadBalancerCreateOptsService{{
			Protocol: hcloud.LoadBalancerServiceProtocolTCP, ListenPort: hcloud.Ptr(7),
			DestinationPort: hcloud.Ptr(7),
		}},
	})
	noError(t, err)
	l.done(made.Action)
	lb, _, err := l.cloud.LoadBalancer.GetByID(t.Context(), made.LoadBalancer.ID)
	noError(t, err)
	front := ipnet.Addr(lb.PublicNet.IPv4.IP)
	for _, private := range []bool{true, false} {
		action, _, err := l.cloud.LoadBalancer.AddServerTarget(t.Context(), lb,
			hcloud.LoadBalancerAddServerTargetOpts{Server: a, UsePrivateIP: &private})
		noError(t, err)
		l.done(action)
		source := front
		if private {
			source = ipnet.Addr(lb.PrivateNet[0].IP)
		}
		l.eventually("a is served", func() bool { return l.reply(l.Outside(), front) != "" })
		l.expect(fmt.Sprintf("a as a target, private: %v", private), l.reply(l.Outside(), front), "a saw "+source.String())
		action, _, err = l.cloud.LoadBalancer.RemoveServerTarget(t.Context(), lb, a)
		noError(t, err)
		l.done(action)
	}
	l.expect("without targets", l.reply(l.Outside(), front), "")
	action, _, err := l.cloud.LoadBalancer.DetachFromNetwork(t.Context(), lb,
		hcloud.LoadBalancerDetachFromNetworkOpts{Network: n})
	noError(t, err)
	l.done(action)
	_, _, err = l.cloud.LoadBalancer.DeleteWithResult(t.Context(), lb)
	noError(t, err)
}
