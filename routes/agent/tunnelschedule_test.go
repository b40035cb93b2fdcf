package agent

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/routes"
)

// wired is a device that shakes hands with those of other machines that have its key.
type wired struct {
	device
	of      *tunnelMachine
	key     string
	created int // keys so far
}

func (d *wired) State(ctx context.Context) (TunnelState, error) {
	s, err := d.device.State(ctx)
	if d.key == "" {
		d.created++
		d.key = keyOf(fmt.Sprint(d.of.name, "-", d.port, "-", d.created))
	}
	for _, other := range d.of.of.machines {
		end := other.devices[d.port]
		if p, peered := s.Peers[end.key]; peered && p.Endpoint.IsValid() {
			if _, back := end.peers[d.key]; back {
				p.Handshake = time.Now()
				s.Peers[end.key] = p
				d.peers[end.key] = p
			}
		}
	}
	s.PublicKey, s.Port, s.Link = d.key, d.port, d.port
	return s, err
}

func (d *wired) Remove(context.Context, bool) error {
	d.forget()
	return nil
}

// forget deletes the device and its key.
func (d *wired) forget() {
	d.key, d.peers = "", map[string]TunnelPeerState{}
	d.of.kernel.table = slices.DeleteFunc(d.of.kernel.table, func(e Entry) bool {
		return e.Link == d.port
	})
}

// staleNodes are the Nodes as a machine observed them last.
type staleNodes struct {
	nodes []*kube.Node
	own   *corev1.Node
}

func (n *staleNodes) Ready() error { return nil }
func (n *staleNodes) All() ([]*kube.Node, error) {
	return n.nodes,
		nil
}
func (n *staleNodes) Own() *corev1.Node                                         { return n.own }
func (n *staleNodes) Subscribe(func(old, now *corev1.Node), func(string)) error { return nil }

var tunnelPorts = []int{51820, 51821}

// tunnelMachine is a node whose packets are all encrypted.
type tunnelMachine struct {
	of        *tunnelCluster
	name      string
	port      int
	kernel    *machine
	devices   map[int]*wired // by port
	view      *staleNodes
	agent     *Agent
	published *kube.WireGuard // not written to the Node yet
}

type tunnelCluster struct {
	t        *testing.T
	seed     uint64
	rng      *rand.Rand
	nodes    map[string]*kube.Node
	machines []*tunnelMachine
	log      []string
}

func newTunnelCluster(t *testing.T, seed uint64) *tunnelCluster {
	c := &tunnelCluster{
		t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 4)), nodes: map[string]*kube.Node{},
	}
	for i := range 4 {
		s := tunneled("")
		name := fmt.Sprint("n", i)
		address := fmt.Sprintf("10.0.0.%d", 10+i)
		s.Links[1].Addrs = []netip.Prefix{prefix(address + "/24")}
		for _, port := range tunnelPorts {
			s.Links = append(s.Links, Link{Index: port, Name: TunnelLink(port), Up: true, MTU: 1370})
		}
		m := &tunnelMachine{
			of: c, name: name, port: tunnelPorts[0], devices: map[int]*wired{}, view: &staleNodes{},
		}
		m.kernel = &machine{links: s.Links, table: append(s.Table, foreign("10.0.0.0/24", "", 2)), neighbors: map[netip.Addr]bool{}}
		for _, port := range tunnelPorts {
			m.devices[port] = &wired{
				of: m,
				device: device{
					port: port, peers: map[string]TunnelPeerState{}, answers: map[netip.AddrPort]bool{},
				},
			}
		}
		c.machines = append(c.machines, m)
		c.nodes[name] = aNode(name, address, fmt.Sprintf("10.244.%d.0/24", 1+i))
		m.start()
	}
	return c
}

// start starts the machine's agent, or another one after it.
func (m *tunnelMachine) start() {
	s := tunneled("").Settings
	s.Self, s.Tunnels.Phase, s.Tunnels.Port = m.name, routes.RequireTunnels, m.port
	ipv4 := []routes.Mode{routes.ByCloud, routes.ByNodes}[m.of.seed%2]
	s.Modes = routes.Modes{IPv4: ipv4, IPv6: routes.Unrouted}
	cfg := Config{
		Client: fake.NewClientset(), Nodes: m.view, Kernel: m.kernel,
		Recorder: record.NewFakeRecorder(1000),
		Registry: metrics.NewKubeRegistry(), Settings: s, Devices: []Tunnels{m.devices[m.port]},
		Period: time.Minute,
	}
	for _, port := range tunnelPorts {
		if port != m.port && m.devices[port].key != "" {
			cfg.Devices = append(cfg.Devices, m.devices[port])
		}
	}
	m.stop()
	a, err := New(cfg)
	if err != nil {
		m.of.t.Fatal(err)
	}
	m.agent = a
}

func (m *tunnelMachine) stop() {
	if m.agent != nil {
		m.agent.queue.ShutDown()
		m.agent.status.queue.ShutDown()
	}
}

// observe brings the machine's Nodes up to date.
func (m *tunnelMachine) observe() {
	m.view.nodes, m.view.own = nil, nil
	for _, name := range slices.Sorted(maps.Keys(m.of.nodes)) {
		n := *m.of.nodes[name]
		m.view.nodes = append(m.view.nodes, &n)
		if name == m.name {
			m.view.own = object(&n)
		}
	}
}

// publish writes the annotation that the agent wanted to write last.
func (m *tunnelMachine) publish() {
	if n := m.of.nodes[m.name]; n != nil && m.published != nil {
		n.WireGuard, m.published = m.published, nil
	}
}

// pass runs a pass and checks what holds at any time.
func (m *tunnelMachine) pass() {
	_ = m.agent.pass(m.of.t.Context()) // fails while there is no Node
	if latest := m.agent.status.latest.Load(); latest != nil && latest.wireGuard != nil {
		m.published = latest.wireGuard
	}
	claims := map[string]int{}
	for _, n := range m.view.nodes {
		for _, port := range tunnelPorts {
			claims[n.WireGuard.Key(port)]++
		}
	}
	for _, e := range m.kernel.table {
		if e.Ours() && e.Kind == Unicast && !slices.Contains(tunnelPorts, e.Link) {
			m.of.fail("%s routes %s in plain text", m.name, e)
		}
	}
	for port, d := range m.devices {
		owners := map[netip.Prefix]string{}
		for key, p := range d.peers {
			for _, a := range p.AllowedIPs {
				if owners[a] != "" {
					m.of.fail("%s has %s at two peers of port %d", m.name, a, port)
				}
				owners[a] = key
			}
			if m.view.own != nil && claims[key] != 1 && d.key != "" {
				m.of.fail("%s has a peer with a key of %d Nodes", m.name, claims[key])
			}
		}
	}
}

func (c *tunnelCluster) fail(format string, args ...any) {
	c.t.Helper()
	for _, m := range c.machines {
		m.stop()
	}
	c.t.Fatalf("seed %d: %s\nafter %s", c.seed, fmt.Sprintf(format, args...), strings.Join(c.log, ", "))
}

// step lets something happen somewhere.
func (c *tunnelCluster) step() {
	m := c.machines[c.rng.IntN(len(c.machines))]
	events := []struct {
		name string
		do   func()
	}{
		{"observes", m.observe},
		{"observes", m.observe},
		{"publishes", m.publish},
		{"passes", m.pass},
		{"passes", m.pass},
		{"passes", m.pass},
		{"restarts", m.start},
		{"reboots", func() {
			for _, d := range m.devices {
				d.peers = map[string]TunnelPeerState{}
			}
			m.kernel.table = slices.DeleteFunc(m.kernel.table, Entry.Ours)
			m.start()
		}},
		{"loses its keys", func() {
			for _, d := range m.devices {
				d.forget()
			}
			m.start()
		}},
		{"changes its port", func() {
			m.port = tunnelPorts[c.rng.IntN(2)]
			m.start()
		}},
		{"is cloned", func() {
			other := c.nodes[c.machines[c.rng.IntN(len(c.machines))].name]
			if n := c.nodes[m.name]; n != nil && other != nil {
				n.WireGuard = other.WireGuard
			}
		}},
		{"swaps podCIDRs", func() {
			other := c.machines[c.rng.IntN(len(c.machines))].name
			one, two := *c.nodes[m.name], *c.nodes[other]
			one.PodCIDRs, two.PodCIDRs = two.PodCIDRs, one.PodCIDRs
			c.nodes[m.name], c.nodes[other] = &one, &two
		}},
	}
	e := events[c.rng.IntN(len(events))]
	c.log = append(c.log, m.name+" "+e.name)
	e.do()
	time.Sleep(time.Duration(c.rng.IntN(20)) * time.Second)
}

// calm expects that every pair is connected, by one device of each machine, once nothing happens
// but what agents do.
func (c *tunnelCluster) calm() {
	for _, m := range c.machines {
		m.port = tunnelPorts[0]
		m.start()
	}
	for range 12 {
		for _, m := range c.machines {
			m.observe()
			m.pass()
			m.publish()
		}
		time.Sleep(20 * time.Second)
	}
	for _, m := range c.machines {
		if m.devices[tunnelPorts[1]].key != "" || len(c.nodes[m.name].WireGuard.Keys) != 1 {
			c.fail("%s still has its earlier device: %+v", m.name, c.nodes[m.name].WireGuard)
		}
		for _, other := range c.machines {
			if m == other {
				continue
			}
			dst, own := c.nodes[other.name].PodCIDRs[0], c.nodes[m.name].PodCIDRs[0]
			here, there := m.devices[m.port], other.devices[m.port]
			switch {
			case !slices.Contains(m.kernel.table, toward(dst, netip.Addr{}, m.port)):
				c.fail("%s has no route to %s:\n%s", m.name, other.name, m.kernel)
			case !slices.Contains(here.peers[there.key].AllowedIPs, dst):
				c.fail("%s sends nothing to %s: %s", m.name, other.name, here)
			case !slices.Contains(there.peers[here.key].AllowedIPs, own):
				c.fail("%s accepts nothing from %s: %s", other.name, m.name, there)
			}
		}
	}
}

// Whatever happens to nodes, and however late their agents observe it, packets of pods never have a
// plain route, a prefix never belongs to two peers, and all nodes are connected again in the end.
func TestSchedulesOfTunnels(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			c := newTunnelCluster(t, seed)
			for range 120 {
				c.step()
			}
			c.calm()
			for _, m := range c.machines {
				m.stop()
			}
		})
	}
}
