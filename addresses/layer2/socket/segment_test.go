//go:build linux

package socket_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/addresses/layer2"
	"github.com/underlay-ccm/underlay/addresses/layer2/socket"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

var (
	prefix4  = netip.MustParsePrefix("192.0.2.0/24")
	prefix6  = netip.MustParsePrefix("2001:db8::/64")
	address4 = netip.MustParseAddr("192.0.2.100")
	address6 = netip.MustParseAddr("2001:db8::100")
)

// segment is a bridge with machines, each a network namespace.
type segment struct {
	t      testing.TB
	bridge *netns.Space
}

func newSegment(t testing.TB) *segment {
	s := &segment{t: t, bridge: netns.New(t)}
	s.bridge.Run("ip", "link", "add", "br0", "type", "bridge")
	s.bridge.Run("ip", "link", "set", "br0", "up")
	return s
}

// host is a machine with the kernel's own addresses: 192.0.2.N and 2001:db8::N.
type host struct {
	*netns.Space
	t    testing.TB
	name string
	link layer2.Link
}

func (s *segment) host(name, number string) *host {
	h := &host{Space: netns.New(s.t), t: s.t, name: name}
	netns.Link(h.Space, "eth0", s.bridge, "to-"+name)
	s.bridge.Run("ip", "link", "set", "to-"+name, "master", "br0")
	h.Run("ip", "addr", "add", "192.0.2."+number+"/24", "dev", "eth0")
	h.Run("ip", "addr", "add", "2001:db8::"+number+"/64", "dev", "eth0", "nodad")
	h.link = layer2.Link{Name: "eth0", Prefixes: []netip.Prefix{prefix4, prefix6}}
	h.Do(func() {
		interfaceOf, err := net.InterfaceByName("eth0")
		if err != nil {
			s.t.Error(err)
			return
		}
		h.link.Index, h.link.MAC = interfaceOf.Index, interfaceOf.HardwareAddr
	})
	return h
}

// inside is a wire that joins groups within the machine's namespace.
type inside struct {
	layer2.Wire
	*host
}

func (w inside) Join(held []netip.Addr) (err error) {
	w.Do(func() { err = w.Wire.Join(held) })
	return err
}

func (h *host) open(
	ctx context.Context, link layer2.Link, family addresses.Family,
) (w layer2.Wire, err error) {
	h.Do(func() { w, err = socket.Open(ctx, link, family) })
	return inside{w, h}, err
}

// responder runs on the machine until the test ends, or until stop.
func (h *host) responder(friends ...*host) (r *layer2.Responder, stop func()) {
	r = layer2.New(h.open, func(mac net.HardwareAddr) bool {
		for _, f := range friends {
			if mac.String() == f.link.MAC.String() {
				return true
			}
		}
		return false
	})
	ctx, cancel := context.WithCancel(klog.NewContext(context.WithoutCancel(h.t.Context()),
		logr.Discard()))
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx, func() {}) })
	stop = func() { cancel(); running.Wait() }
	h.t.Cleanup(stop)
	return r, stop
}

// hold returns the desired state in which the machine holds both addresses with an epoch. With
// epoch 1 no node has held them before.
func (h *host) hold(epoch uint64) layer2.Desired {
	return layer2.Desired{Links: []layer2.Link{h.link}, Assignment: addresses.Assignment{Cluster: "one", Hold: []addresses.Assigned{
		{Address: address4, Epoch: epoch, Held: epoch > 1},
		{Address: address6, Epoch: epoch, Held: epoch > 1},
	}}}
}

// elsewhere returns the desired state in which another machine holds them.
func (h *host) elsewhere() layer2.Desired {
	return layer2.Desired{Links: []layer2.Link{h.link}, Assignment: addresses.Assignment{
		Cluster: "one", Elsewhere: []netip.Addr{address4, address6},
	}}
}

func await(t testing.TB, within time.Duration, what string, is func() bool) {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for end := time.Now().Add(within); !is(); <-ticker.C {
		if time.Now().After(end) {
			t.Fatalf("after %s still not: %s", within, what)
		}
	}
}

func awaitPhase(t *testing.T, r *layer2.Responder, phase layer2.Phase) []layer2.State {
	t.Helper()
	var states []layer2.State
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the last states: %+v", states)
		}
	})
	await(t, 10*time.Second, "both addresses "+string(phase), func() bool {
		states = r.State()
		return len(states) == 2 && states[0].Phase == phase && states[1].Phase == phase
	})
	return states
}

// neighbor returns the hardware address of an address in the machine's neighbor table.
func (h *host) neighbor(address netip.Addr) string {
	fields := strings.Fields(h.Run("ip", "neigh", "show", address.String(), "dev", "eth0"))
	for i, f := range fields {
		if f == "lladdr" && i+1 < len(fields) {
			return fields[i+1]
		}
	}
	return ""
}

// poke sends a packet to an address, so that the kernel resolves its hardware address.
func (h *host) poke(address netip.Addr) {
	var failed error
	h.Do(func() {
		conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(address, 9)))
		if err != nil {
			failed = err
			return
		}
		_, err = conn.Write([]byte("x"))
		failed = errors.Join(err, conn.Close())
	})
	if failed != nil {
		h.t.Fatal(failed)
	}
}

// finds waits until the machine resolves an address to another one's hardware address.
func (h *host) finds(address netip.Addr, at *host) {
	h.t.Helper()
	await(h.t, 5*time.Second, h.name+" finds "+address.String()+" at "+at.name, func() bool {
		return h.neighbor(address) == at.link.MAC.String()
	})
}

// serve makes the machine reply to packets to the held addresses at UDP port 7, as kube-proxy does.
func (h *host) serve() {
	h.Sysctl("net/ipv4/ip_forward", "1")
	h.Sysctl("net/ipv6/conf/all/forwarding", "1")
	for _, c := range []struct{ family, own, address string }{
		{"ip", strings.TrimSpace(h.own("4")), address4.String()},
		{"ip6", strings.TrimSpace(h.own("6")), address6.String()},
	} {
		h.Run("nft", "add table "+c.family+" t; add chain "+c.family+" t c { type nat hook prerouting priority dstnat; }; "+
			"add rule "+c.family+" t c "+c.family+" daddr "+c.address+" udp dport 7 dnat to "+c.own)
	}
	var conn net.PacketConn
	var err error
	h.Do(func() { conn, err = net.ListenPacket("udp", ":7") })
	if err != nil {
		h.t.Fatal(err)
	}
	var running sync.WaitGroup
	h.t.Cleanup(running.Wait)
	h.t.Cleanup(func() { _ = conn.Close() })
	running.Go(func() {
		buffer := make([]byte, 100)
		for {
			n, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo(buffer[:n], from)
		}
	})
}

func (h *host) own(family string) string {
	for _, field := range strings.Fields(h.Run("ip", "-"+family, "-o", "addr", "show", "dev", "eth0", "scope", "global")) {
		if p, err := netip.ParsePrefix(field); err == nil {
			return p.Addr().String()
		}
	}
	return ""
}
