//go:build linux

package main

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/underlay-ccm/underlay/addresses"
	addressagent "github.com/underlay-ccm/underlay/addresses/agent"
	"github.com/underlay-ccm/underlay/addresses/bgp"
	"github.com/underlay-ccm/underlay/addresses/layer2"
	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/routes/agent"
	"github.com/underlay-ccm/underlay/test/testenv/complete"
)

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// Only interfaces that are up, and none of pods', have neighbors that resolve addresses.
func TestSegmentLinks(t *testing.T) {
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	found := []agent.Link{
		{Index: 5, Name: "eth1", Up: true, Carrier: true, Hardware: mac, Addrs: prefixes("fe80::1/64", "192.0.2.7/24", "192.0.2.8/24", "2001:db8::7/64")},
		{Index: 2, Name: "eth0", Up: true, Carrier: true, Hardware: mac, Addrs: prefixes("198.51.100.7/32", "fe80::1/64")},
		{Index: 1, Name: "lo", Up: true, Carrier: true, Addrs: prefixes("127.0.0.1/8")},
		{Index: 9, Name: "veth1234", Up: true, Carrier: true, Hardware: mac, Addrs: prefixes("10.244.1.1/24")},
		{Index: 6, Name: "down", Carrier: true, Hardware: mac, Addrs: prefixes("10.0.0.1/24")},
		{Index: 7, Name: "unplugged", Up: true, Hardware: mac, Addrs: prefixes("10.0.1.1/24")},
		{Index: 8, Name: "tunnel", Up: true, Carrier: true, Addrs: prefixes("10.0.2.1/24")},
	}
	var got []string
	for _, l := range segmentLinks(found) {
		got = append(got, fmt.Sprint(l.Name, l.Prefixes))
	}
	if want := "eth1[192.0.2.0/24 2001:db8::/64]"; strings.Join(got, " ") != want {
		t.Errorf("segments %s, want %s", got, want)
	}
	table := []agent.Entry{
		{Dst: netip.MustParsePrefix("::/0"), Kind: agent.Unicast, Link: 5},
		{Dst: netip.MustParsePrefix("0.0.0.0/0"), Kind: agent.Unicast, Link: 5, Metric: 200},
		{Dst: netip.MustParsePrefix("0.0.0.0/0"), Kind: agent.Unicast, Link: 2, Metric: 100},
		{Dst: netip.MustParsePrefix("0.0.0.0/0"), Kind: agent.Unicast, Link: 7, Metric: 1},
		{Dst: netip.MustParsePrefix("10.0.0.0/8"), Kind: agent.Unicast, Link: 5},
	}
	if got := uplinkOf(table, working(found)); got != "eth0" {
		t.Errorf("IPv4 leaves through %q, want the best default route that works", got)
	}
}

// Several nodes hold an address at once only if routers select among them; and an address that a
// provider routes may be routed to any node.
func TestMoversOfPools(t *testing.T) {
	var a config.Addresses
	for _, kind := range []addresses.Mover{
		addresses.Failover, addresses.FloatingIP, addresses.BGP, addresses.Layer2,
	} {
		a.Pools = append(a.Pools, config.AddressPool{
			Pool: addresses.Pool{Name: string(kind)}, Mover: kind,
		})
	}
	together, routed := map[string]bool{}, map[string]bool{}
	for _, m := range movers(a, "self", nil, addressagent.NewFriends(neighbors{})) {
		together[m.Name], routed[m.Name] = m.Together, m.Routed
	}
	want := map[string]bool{"layer2": false, "bgp": false, "floating-ip": true, "failover": true}
	if !maps.Equal(routed, want) {
		t.Errorf("a provider leads to nodes: %v, want %v", routed, want)
	}
	var pools []string
	for _, p := range led(a) {
		pools = append(pools, p.Name)
	}
	if !slices.Equal(pools, []string{"failover", "floating-ip"}) {
		t.Errorf("a provider leads addresses of the pools %v", pools)
	}
	want = map[string]bool{"layer2": false, "bgp": true, "floating-ip": false, "failover": false}
	if !maps.Equal(together, want) {
		t.Errorf("together: %v, want %v", together, want)
	}
}

// silent is a segment without other hosts.
type silent struct {
	closed <-chan struct{}
	end    func()
}

func (n *silent) Send([]byte) error           { return nil }
func (n *silent) Receive([]byte) (int, error) { <-n.closed; return 0, net.ErrClosed }
func (n *silent) Join([]netip.Addr) error     { return nil }
func (n *silent) Close() error                { n.end(); return nil }

// An address that no node has held is probed longer than one that moves.
func TestExternalHostsAreProbedForByTheLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := func(ctx context.Context, _ layer2.Link, _ addresses.Family) (layer2.Wire, error) {
			ctx, cancel := context.WithCancel(ctx)
			return &silent{ctx.Done(), cancel}, nil
		}
		responder := layer2.New(open, nil)
		s := newSegment(responder, nil, false)
		s.links = []layer2.Link{{Name: "up0", Index: 2, MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, Prefixes: prefixes("192.0.2.0/24")}}
		moves, given := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
		s.Set(addresses.Assignment{
			Hold: []addresses.Assigned{{Address: moves, Epoch: 7, Held: true}, {Address: given, Epoch: 7}},
		})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { responder.Run(ctx, func() {}) })
		time.Sleep(time.Second)
		synctest.Wait()
		var probes []int
		for _, state := range responder.State() {
			probes = append(probes, state.Sent[layer2.Probe])
		}
		if !slices.Equal(probes, []int{1, 3}) {
			t.Errorf("%v probes, want one for the address that moves and three for the other", probes)
		}
		cancel()
		running.Wait()
	})
}

func nodeInRack(rack string) *addresses.Node {
	return &addresses.Node{
		Labels: map[string]string{"rack": rack}, PodCIDRs: prefixes("10.244.1.0/24", "fd01:1::/64"),
		InternalIPs: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")},
	}
}

// A node has sessions with the routers that its labels select, and a password that can't be read
// costs one of them.
func TestRoutersOfANode(t *testing.T) {
	password := filepath.Join(t.TempDir(), "password")
	rack, err := labels.Parse("rack=1")
	if err != nil {
		t.Fatal(err)
	}
	settings := config.BGP{ASN: 64512, PodCIDRs: true, Peers: []config.BGPPeer{
		{Peer: bgp.Peer{Name: "all", Address: netip.MustParseAddr("10.0.0.9"), ASN: 64500}},
		{Peer: bgp.Peer{Name: "rack", Address: netip.MustParseAddr("10.0.0.8"), ASN: 64500}, Nodes: rack, PasswordFile: password},
	}}
	r := newRouters("self", settings)
	hold := []addresses.Assigned{{Address: netip.MustParseAddr("192.0.2.1")}}
	for _, c := range []struct{ rack, password, peers, problem string }{
		{rack: "2", peers: "all"},
		{rack: "1", peers: "all", problem: "passwordFile " + password + " of router rack"},
		{rack: "1", password: "secret\n", peers: "all rack"},
		{rack: "1", password: "\n", peers: "all", problem: "the password is empty"},
	} {
		if err := os.WriteFile(password, []byte(c.password), 0o600); err != nil {
			t.Fatal(err)
		}
		if c.problem != "" && c.password == "" {
			_ = os.Remove(password)
		}
		d, err := r.desired(addresses.Assignment{Node: nodeInRack(c.rack), Hold: hold})
		var peers []string
		for _, p := range d.Peers {
			peers = append(peers, p.Name)
		}
		if strings.Join(peers, " ") != c.peers || (err == nil) != (c.problem == "") || err != nil && !strings.Contains(err.Error(), c.problem) {
			t.Errorf("%+v: peers %v, %v", c, peers, err)
		}
		if !slices.Equal(d.Prefixes, prefixes("192.0.2.1/32", "10.244.1.0/24", "fd01:1::/64")) {
			t.Errorf("%+v: %+v", c, d)
		}
		if strings.Contains(fmt.Sprintf("%+v %v", d, err), "secret") {
			t.Error("the password is shown")
		}
	}
}

// TestARouterReceivesAnnouncements runs a session with a real router.
func TestARouterReceivesAnnouncements(t *testing.T) {
	if _, err := exec.LookPath("bird"); err != nil {
		complete.Skip(t, "the router is Debian's bird2, which is not installed: apt install bird2")
	}
	n := newNeighborhood(t)
	dir := t.TempDir()
	conf := filepath.Join(dir, "bird.conf")
	text := "router id 10.0.0.9;\nprotocol device {}\nprotocol bgp node { local 10.0.0.9 as 64500; neighbor 10.0.0.1 as 64512; " +
		"ipv4 { import all; export none; }; }\n"
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	n.client.Run("bird", "-c", conf, "-s", filepath.Join(dir, "ctl"), "-P", filepath.Join(dir, "pid"))
	t.Cleanup(func() { n.client.Run("birdc", "-s", filepath.Join(dir, "ctl"), "down") })

	bird := bgp.Peer{Name: "bird", Address: netip.MustParseAddr("10.0.0.9"), Port: 179, ASN: 64500, HoldTime: 9 * time.Second}
	r := newRouters("self", config.BGP{ASN: 64512, Peers: []config.BGPPeer{{Peer: bird}}})
	held, v6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	r.Set(addresses.Assignment{Node: nodeInRack("1"), Hold: []addresses.Assigned{{Address: held}}})
	ctx, cancel := context.WithCancel(t.Context())
	done, changed := make(chan error, 1), make(chan struct{}, 1)
	go func() {
		done <- r.Run(ctx, func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
	}()
	await(t, "the address is held once a router knows it", func(context.Context) bool {
		s := r.Status()
		return len(s.Held) == 1 && s.Held[0].Address == held && len(s.Refused) == 0 &&
			len(s.Routers) == 1 && s.Routers[0].Established
	})
	if len(changed) == 0 {
		t.Error("nobody is told that the session stands")
	}
	await(t, "the router has a route", func(context.Context) bool {
		return strings.Contains(n.client.Run("birdc", "-s", filepath.Join(dir, "ctl"), "show", "route"), "192.0.2.1/32")
	})
	r.Set(addresses.Assignment{
		Node: nodeInRack("1"), Hold: []addresses.Assigned{{Address: held}, {Address: v6}},
	})
	await(t, "what no session carries is told", func(context.Context) bool {
		s := r.Status()
		return len(s.Held) == 1 && len(s.Refused) == 1 && s.Refused[0].Reason == addresses.NoRouter &&
			s.Refused[0].Address == v6
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if s := r.Status(); len(s.Held) != 0 {
		t.Errorf("without sessions it holds %v", s.Held)
	}
}
