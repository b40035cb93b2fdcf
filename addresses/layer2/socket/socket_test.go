//go:build linux

package socket_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/addresses/layer2"
	"github.com/underlay-ccm/underlay/addresses/layer2/socket"
)

// Another machine's kernel resolves a held address to this machine.
func TestAKernelFindsTheAddress(t *testing.T) {
	s := newSegment(t)
	a, client := s.host("a", "1"), s.host("client", "9")
	r, stop := a.responder()
	r.Set(a.hold(1))
	states := awaitPhase(t, r, layer2.Holding)
	if states[0].Sent[layer2.Probe] != 3 || states[1].Sent[layer2.Probe] != 3 {
		t.Errorf("%+v", states)
	}
	for _, address := range []netip.Addr{address4, address6} {
		client.poke(address)
		client.finds(address, a)
	}
	if groups := a.Run("ip", "-6", "maddr", "show", "dev", "eth0"); !strings.Contains(groups, "ff02::1:ff00:100") {
		t.Errorf("groups:\n%s", groups)
	}
	for _, state := range r.State() {
		if state.Sent[layer2.Reply] == 0 || state.By != (layer2.MAC{}) {
			t.Errorf("%+v", state)
		}
	}

	stop()
	client.Run("ip", "neigh", "flush", "all")
	for _, address := range []netip.Addr{address4, address6} {
		client.poke(address)
	}
	if groups := a.Run("ip", "-6", "maddr", "show", "dev", "eth0"); strings.Contains(groups, "ff02::1:ff00:100") {
		t.Errorf("groups after the end:\n%s", groups)
	}
	await(t, 5*time.Second, "nobody answers", func() bool {
		out := client.Run("ip", "neigh", "show", address4.String(), "dev", "eth0")
		return strings.Contains(out, "FAILED") || out == ""
	})
}

// A router forwards the traffic of an address outside of the segment's prefixes, and resolves the
// address first.
func TestARouterResolvesAHeldAddress(t *testing.T) {
	s := newSegment(t)
	a, router := s.host("a", "1"), s.host("router", "9")
	routed := netip.MustParseAddr("198.51.100.7")
	router.Run("ip", "route", "add", routed.String()+"/32", "dev", "eth0")
	r, _ := a.responder()
	r.Set(layer2.Desired{
		Links: []layer2.Link{{Name: "eth0", Index: a.link.Index, MAC: a.link.MAC}}, ReplyOn: "eth0",
		Assignment: addresses.Assignment{
			Doubt: true, Hold: []addresses.Assigned{{Address: routed, Epoch: 1}},
		},
	})
	router.poke(routed)
	router.finds(routed, a)
	if now := r.State()[0]; now.Sent[layer2.Probe]+now.Sent[layer2.Announce] != 0 ||
		now.Sent[layer2.Reply] == 0 {
		t.Errorf("%+v", now)
	}
}

// A kernel that probes a known neighbor gets replies.
func TestAKernelLooksAgain(t *testing.T) {
	s := newSegment(t)
	a, client := s.host("a", "1"), s.host("client", "9")
	for _, family := range []string{"ipv4", "ipv6"} {
		client.Sysctl("net/"+family+"/neigh/eth0/base_reachable_time_ms", "100")
		client.Sysctl("net/"+family+"/neigh/eth0/delay_first_probe_time", "0")
	}
	r, _ := a.responder()
	r.Set(a.hold(2))
	awaitPhase(t, r, layer2.Holding)
	await(t, 10*time.Second, "several answers, and neighbors that are reachable", func() bool {
		reachable := true
		for i, address := range []netip.Addr{address4, address6} {
			client.poke(address)
			out := client.Run("ip", "neigh", "show", address.String(), "dev", "eth0")
			reachable = reachable && strings.Contains(out, "REACHABLE") && r.State()[i].Sent[layer2.Reply] > 3
		}
		return reachable
	})
}

// A switch that forwards multicast only to members of a group forwards solicitations of the
// address.
func TestASwitchThatLooksForMembers(t *testing.T) {
	s := newSegment(t)
	s.bridge.Run("ip", "link", "set", "br0", "type", "bridge", "mcast_snooping", "1", "mcast_query_response_interval", "10", "mcast_querier", "1")
	a, client := s.host("a", "1"), s.host("client", "9")
	r, _ := a.responder()
	r.Set(a.hold(2))
	awaitPhase(t, r, layer2.Holding)
	await(t, 10*time.Second, "the switch knows of the group", func() bool {
		return strings.Contains(s.bridge.Run("bridge", "mdb", "show"), "port to-a grp ff02::1:ff00:100")
	})
	client.poke(address6)
	client.finds(address6, a)
}

// The socket requires the capability NET_RAW and no other.
func TestCapabilities(t *testing.T) {
	s := newSegment(t)
	a := s.host("a", "1")
	for _, c := range []struct {
		capabilities uint32
		want         error
	}{{1 << unix.CAP_NET_RAW, nil}, {0, unix.EPERM}} {
		for _, family := range []addresses.Family{addresses.IPv4, addresses.IPv6} {
			var err error
			a.Do(func() { // on a thread that ends with it
				header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
				data := [2]unix.CapUserData{{Effective: c.capabilities, Permitted: c.capabilities}}
				if err = unix.Capset(&header, &data[0]); err != nil {
					return
				}
				var w layer2.Wire
				if w, err = socket.Open(context.Background(), a.link, family); err == nil {
					err = errors.Join(w.Join([]netip.Addr{address6}), w.Send(make([]byte, 60)), w.Close())
				}
			})
			if !errors.Is(err, c.want) || err != nil && !strings.Contains(err.Error(), "give the program the capability NET_RAW") {
				t.Errorf("%s with capabilities %x: %v, want %v", family, c.capabilities, err, c.want)
			}
		}
	}
}

// An external host has an address: the machine neither replies for it nor announces it, and clients
// still reach the external host.
func TestAStrangerHasTheAddress(t *testing.T) {
	s := newSegment(t)
	a, stranger, client := s.host("a", "1"), s.host("stranger", "66"), s.host("client", "9")
	stranger.Run("ip", "addr", "add", address4.String()+"/24", "dev", "eth0")
	stranger.Run("ip", "addr", "add", address6.String()+"/64", "dev", "eth0", "nodad")
	for _, address := range []netip.Addr{address4, address6} {
		client.poke(address)
		client.finds(address, stranger)
	}
	r, _ := a.responder()
	r.Set(a.hold(1))
	for _, state := range awaitPhase(t, r, layer2.Refused) {
		if state.By.String() != stranger.link.MAC.String() || state.Friend ||
			state.Sent[layer2.Announce] != 0 || state.Sent[layer2.Reply] != 0 {
			t.Errorf("%+v", state)
		}
	}
	for _, address := range []netip.Addr{address4, address6} {
		client.finds(address, stranger)
	}
}

// A kernel that gets a held address detects the duplicate.
func TestAKernelDetectsTheDuplicate(t *testing.T) {
	s := newSegment(t)
	a, other := s.host("a", "1"), s.host("other", "66")
	r, _ := a.responder()
	r.Set(a.hold(1))
	awaitPhase(t, r, layer2.Holding)
	other.Sysctl("net/ipv6/conf/all/accept_dad", "1")
	other.Sysctl("net/ipv6/conf/eth0/accept_dad", "1")
	other.Run("ip", "addr", "add", address6.String()+"/64", "dev", "eth0")
	await(t, 5*time.Second, "a failed detection of duplicates", func() bool {
		return strings.Contains(other.Run("ip", "-6", "addr", "show", "dev", "eth0"), "dadfailed")
	})

	// For IPv4, this is a machine of another cluster that probes first.
	second, _ := other.responder()
	second.Set(layer2.Desired{Links: []layer2.Link{other.link}, Assignment: addresses.Assignment{
		Cluster: "another", Hold: []addresses.Assigned{{Address: address4, Epoch: 1}},
	}})
	await(t, 5*time.Second, "a refusal", func() bool {
		states := second.State()
		return len(states) == 1 && states[0].Phase == layer2.Refused &&
			states[0].By.String() == a.link.MAC.String()
	})
	for _, state := range r.State() {
		if state.Phase != layer2.Holding || state.By != (layer2.MAC{}) {
			t.Errorf("%+v", state)
		}
	}
}

// A kernel gets a held address without a probe: the address is announced again, and the claimant is
// reported.
func TestAStrangerTakesTheAddress(t *testing.T) {
	s := newSegment(t)
	a, stranger, client := s.host("a", "1"), s.host("stranger", "66"), s.host("client", "9")
	r, _ := a.responder()
	r.Set(a.hold(2))
	awaitPhase(t, r, layer2.Holding)
	stranger.Run("ip", "addr", "add", address4.String()+"/24", "dev", "eth0")
	stranger.Sysctl("net/ipv6/conf/all/ndisc_notify", "1")
	stranger.Sysctl("net/ipv6/conf/eth0/ndisc_notify", "1")
	stranger.Run("ip", "addr", "add", address6.String()+"/64", "dev", "eth0", "nodad")
	await(t, 10*time.Second, "both are told of", func() bool {
		for _, state := range r.State() {
			if state.Phase != layer2.Holding || state.By.String() != stranger.link.MAC.String() {
				return false
			}
		}
		return true
	})
	client.poke(address4)
	before := r.State()[0].Sent[layer2.Announce]
	await(t, 40*time.Second, "a defence", func() bool { return r.State()[0].Sent[layer2.Announce] > before })
	client.finds(address4, a)
}

// The uplink goes down and up, with and without a notification.
func TestUplinkDownAndUp(t *testing.T) {
	s := newSegment(t)
	a, client := s.host("a", "1"), s.host("client", "9")
	r, _ := a.responder()
	r.Set(a.hold(2))
	awaitPhase(t, r, layer2.Holding)
	client.poke(address4)
	client.finds(address4, a)
	t.Run("nobody notices", func(t *testing.T) {
		a.Run("ip", "link", "set", "eth0", "down")
		await(t, 5*time.Second, "trouble", func() bool { return r.State()[0].Trouble != "" && r.State()[1].Trouble != "" })
		a.Run("ip", "link", "set", "eth0", "up")
		awaitPhase(t, r, layer2.Holding)
	})
	t.Run("the links are told", func(t *testing.T) {
		before := r.State()[0].Sent[layer2.Announce]
		a.Run("ip", "link", "set", "eth0", "down")
		r.Set(layer2.Desired{Assignment: a.hold(2).Assignment})
		awaitPhase(t, r, layer2.OffSegment)
		a.Run("ip", "link", "set", "eth0", "up")
		r.Set(a.hold(2))
		awaitPhase(t, r, layer2.Holding)
		await(t, 5*time.Second, "announcements", func() bool { return r.State()[0].Sent[layer2.Announce] == before+4 })
	})
	t.Run("another hardware address", func(t *testing.T) {
		a.Run("ip", "link", "set", "eth0", "address", "02:00:00:00:00:77")
		a.link.MAC = net.HardwareAddr{2, 0, 0, 0, 0, 0x77}
		r.Set(a.hold(2))
		client.finds(address4, a)
	})
}

// The filters pass only ARP and neighbor discovery, and drop forwarded packets and packets of
// another VLAN.
func TestFilters(t *testing.T) {
	s := newSegment(t)
	a, b := s.host("a", "1"), s.host("b", "2")
	ctx := context.Background()
	for _, family := range []addresses.Family{addresses.IPv4, addresses.IPv6} {
		receiver, err := a.open(ctx, a.link, family)
		if err != nil {
			t.Fatal(err)
		}
		sender, err := b.open(ctx, b.link, family)
		if err != nil {
			t.Fatal(err)
		}
		address := address4
		if family == addresses.IPv6 {
			address = address6
		}
		good, err := layer2.Frame{
			Kind: layer2.Announce, From: layer2.MAC(b.link.MAC), Address: address,
		}.Ethernet()
		if err != nil {
			t.Fatal(err)
		}
		change := func(at int, to byte) []byte {
			bad := append([]byte(nil), good...)
			bad[at] = to
			return bad
		}
		tagged := append(append([]byte(nil), good[:12]...), 0x81, 0, 0, 7)
		tagged = append(tagged, good[12:]...)
		bad := [][]byte{tagged, change(21, 9)}
		if family == addresses.IPv6 {
			bad = append(bad, change(20, 17), change(54, 134))
		}
		marked := append([]byte(nil), good...)
		marked[6], marked[11] = 2, 0x99 // the last frame is recognised by its sender
		for _, frame := range append(bad, marked) {
			if err := sender.Send(frame); err != nil {
				t.Fatal(err)
			}
		}
		buffer := make([]byte, 2048)
		for {
			n, err := receiver.Receive(buffer)
			if err != nil {
				t.Fatal(err)
			}
			m, ok := layer2.Parse(buffer[:n])
			if ok && m.From == layer2.MAC(marked[6:12]) {
				break
			}
			if m.Claim == address || !ok {
				t.Errorf("%s: % x came through", family, buffer[:n])
			}
		}
		for _, w := range []layer2.Wire{receiver, sender} {
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// Machines that hold thousands of addresses join their groups.
func TestManyGroups(t *testing.T) {
	s := newSegment(t)
	a := s.host("a", "1")
	w, err := a.open(context.Background(), a.link, addresses.IPv6)
	if err != nil {
		t.Fatal(err)
	}
	var held []netip.Addr
	for address := address6; len(held) < 3000; address = address.Next() {
		held = append(held, address)
	}
	joined := func() int { return strings.Count(a.Run("ip", "-6", "maddr", "show", "dev", "eth0"), "ff02::1:ff00:") }
	for _, n := range []int{0, 3000, 1000, 3000} {
		if err := w.Join(held[:n]); err != nil {
			t.Fatal(err)
		}
		// The kernel itself has joined the group of the machine's own address.
		if got := joined(); got < n || got > n+2 {
			t.Errorf("%d groups are joined, want %d", got, n)
		}
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if got := joined(); got > 2 {
		t.Errorf("%d groups are joined after the end", got)
	}
}
