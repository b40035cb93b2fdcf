//go:build linux

package netfilter

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/policy"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
	"github.com/underlay-ccm/underlay/test/testenv/policymodel"
)

// enforcer is a machine with the filter of its pods, and an agent that may be away.
type enforcer struct {
	name     string
	space    *netns.Space
	table    *PolicyTable
	index    *policy.Index   // nil while the agent is away
	enforced *policy.Ruleset // by the kernel; nil for no table
}

// schedule is a cluster in the kernel. Every address of policymodel is a place where packets
// begin and end, whether a pod has it or not; those outside are on a router between the nodes.
type schedule struct {
	t     *testing.T
	world policymodel.World
	nodes []*enforcer
	at    map[netip.Addr]*netns.Space
	flows []policy.Connection // of datagrams
	from  map[netip.Addr]*net.UDPConn

	mu      sync.Mutex
	phases  []phase
	arrived []map[policy.Connection]int // by phase

	conversations []*talk
}

// phase is a time in which at most one node's filter changes.
type phase struct {
	what string
	// open flows are allowed before or after the change, and lasting ones before and after it.
	open, lasting map[policy.Connection]bool
}

// talk is an established connection.
type talk struct {
	policy.Connection
	net.Conn
	forbidden bool // since it began
}

func newSchedule(t *testing.T) *schedule {
	t.Helper()
	router := netns.New(t)
	s := &schedule{t: t, at: map[netip.Addr]*netns.Space{}, from: map[netip.Addr]*net.UDPConn{}}
	forwards := func(n *netns.Space) {
		n.Sysctl("net/ipv4/ip_forward", "1")
		n.Sysctl("net/ipv6/conf/all/forwarding", "1")
	}
	forwards(router)
	for _, a := range policymodel.Outside() {
		addresses(router, "lo", netip.PrefixFrom(a, a.BitLen()).String())
		s.at[a] = router
	}
	for i := range policymodel.NodeCount {
		n := netns.New(t)
		forwards(n)
		netns.Link(n, "eth0", router, fmt.Sprint("eth", i))
		for f, net := range []string{fmt.Sprintf("172.16.%d.", i), fmt.Sprintf("2001:db8:77:%d::", i)} {
			bits := []string{"/24", "/64"}[f]
			addresses(n, "eth0", net+"1"+bits)
			addresses(router, fmt.Sprint("eth", i), net+"2"+bits)
			routes(n, net+"2", "default")
			routes(router, net+"1", policymodel.PodCIDRs(i)[f].String())
		}
		for host := 2; host < 5; host++ {
			pod, veth := netns.New(t), fmt.Sprint("veth", host)
			netns.Link(n, veth, pod, "eth0")
			for f, family := range []string{"-4", "-6"} {
				a, gateway := policymodel.Address(i, host, f), policymodel.Address(i, 1, f)
				addresses(n, veth, netip.PrefixFrom(gateway, a.BitLen()).String())
				addresses(pod, "eth0", netip.PrefixFrom(a, a.BitLen()).String())
				n.Run("ip", family, "route", "add", a.String(), "dev", veth)
				pod.Run("ip", family, "route", "add", gateway.String(), "dev", "eth0")
				routes(pod, gateway.String(), "default")
				s.at[a] = pod
			}
		}
		// kube-proxy's rules track connections before there is a policy.
		n.Run("nft", "add table inet kube-proxy; add chain inet kube-proxy c { type filter hook forward priority -10 ; }; add rule inet kube-proxy c ct state new counter")
		s.nodes = append(s.nodes, &enforcer{name: fmt.Sprint("n", i), space: n})
	}
	s.listen()
	return s
}

var schedulePorts = []uint16{80, 81}

// listen opens the sockets of all places.
func (s *schedule) listen() {
	for to, space := range s.at {
		for from, other := range s.at {
			if space == other || from.Is4() != to.Is4() {
				continue
			}
			for _, port := range schedulePorts {
				s.flows = append(s.flows, policy.Connection{
					From: from, To: to, Protocol: policy.UDP, Port: port,
				})
			}
		}
		open := func(port uint16) (socket *net.UDPConn) {
			var err error
			space.Do(func() { socket, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, port))) })
			if err != nil {
				s.t.Fatal(err)
			}
			return socket
		}
		s.from[to] = open(1000)
		s.t.Cleanup(func() { _ = s.from[to].Close() })
		for _, port := range schedulePorts {
			socket := open(port)
			var listener net.Listener
			var err error
			space.Do(func() { listener, err = net.Listen("tcp", netip.AddrPortFrom(to, port).String()) })
			if err != nil {
				s.t.Fatal(err)
			}
			var ended sync.WaitGroup
			ended.Go(func() { s.receive(socket, to, port) })
			ended.Go(func() { s.echo(listener, &ended) })
			s.t.Cleanup(func() { _, _ = socket.Close(), listener.Close(); ended.Wait() })
		}
	}
}

// receive counts datagrams, and reports each that must not arrive, even if it does later.
func (s *schedule) receive(socket *net.UDPConn, to netip.Addr, port uint16) {
	buffer := make([]byte, 20)
	for {
		n, from, err := socket.ReadFromUDPAddrPort(buffer)
		if err != nil {
			return // closed
		}
		flow := policy.Connection{From: from.Addr().Unmap(), To: to, Protocol: policy.UDP, Port: port}
		sent, err := strconv.Atoi(string(buffer[:n]))
		s.mu.Lock()
		s.arrived[sent][flow]++
		if err != nil || !s.phases[sent].open[flow] && s.arrived[sent][flow] == 1 {
			s.t.Errorf("%+v arrived, which is forbidden before and after: %s (%v)", flow, s.phases[sent].what, err)
		}
		s.mu.Unlock()
	}
}

// echo sends back what it receives.
func (s *schedule) echo(listener net.Listener, ended *sync.WaitGroup) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return // closed
		}
		s.t.Cleanup(func() { _ = conn.Close() })
		ended.Go(func() {
			buffer := make([]byte, 1)
			for {
				if _, err := conn.Read(buffer); err != nil {
					return
				}
				_, _ = conn.Write(buffer)
			}
		})
	}
}

// passes reports whether the kernels should let a connection begin.
func (s *schedule) passes(c policy.Connection) bool {
	for _, n := range s.nodes {
		if n.enforced != nil && !n.enforced.Allows(c) {
			return false
		}
	}
	return true
}

// send sends every flow at least once, and until change returns, which makes the nodes' filters
// those of after. Then all that passes before and after has to have arrived, but for mayLose
// datagrams.
func (s *schedule) send(
	what string, mayLose int, change func(), after func(policy.Connection) bool,
) {
	s.t.Helper()
	p := phase{what: what, open: map[policy.Connection]bool{}, lasting: map[policy.Connection]bool{}}
	for _, flow := range s.flows {
		before, after := s.passes(flow), after(flow)
		p.open[flow], p.lasting[flow] = before || after, before && after
	}
	s.mu.Lock()
	number := len(s.phases)
	s.phases, s.arrived = append(s.phases, p), append(s.arrived, map[policy.Connection]int{})
	s.mu.Unlock()
	sent, lost, text := 0, map[policy.Connection]int{}, []byte(strconv.Itoa(number))
	changed, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			sent++
			for _, flow := range s.flows {
				if _, err := s.from[flow.From].WriteToUDPAddrPort(text, netip.AddrPortFrom(flow.To,
					flow.Port)); err != nil {
					s.t.Errorf("sending %+v: %v", flow, err)
				}
			}
			select {
			case <-changed:
				return
			default:
			}
		}
	}()
	change()
	close(changed)
	<-ended
	defer func() {
		if s.t.Failed() {
			s.t.Logf("%s: lost of %d each: %v", what, sent, lost)
		}
	}()
	eventually(s.t, what+": everything that may pass arrived", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		all := 0
		clear(lost)
		for flow, lasting := range p.lasting {
			if missing := sent - s.arrived[number][flow]; lasting && missing > 0 {
				lost[flow], all = missing, all+missing
			}
		}
		return all <= mayLose
	})
}

// apply lets a node's agent set its filter.
func (s *schedule) apply(n *enforcer, what string) {
	s.t.Helper()
	var want *policy.Ruleset
	if n.index.Policies() > 0 {
		rules := n.index.Ruleset()
		want = &rules
	}
	// A commit may drop the datagram that is on its way through the rules; there are at most two.
	s.send(fmt.Sprintf("%s, %s applies", what, n.name), 2, func() {
		var err error
		n.space.Do(func() { _, err = n.table.Apply(s.t.Context(), want) })
		if err != nil {
			s.t.Error(err)
		}
	}, func(c policy.Connection) bool {
		now := n.enforced
		defer func() { n.enforced = now }()
		n.enforced = want
		return s.passes(c)
	})
	n.enforced = want
	for _, c := range s.conversations {
		c.forbidden = c.forbidden || !s.passes(c.Connection)
	}
}

// calm compares what the kernels let pass with the model, and with earlier connections.
func (s *schedule) calm(c policymodel.Chooser, what string, complete bool) {
	s.t.Helper()
	want := s.passes
	if complete {
		want = func(c policy.Connection) bool { return len(s.world.Policies) == 0 || s.world.Allowed(c) }
	}
	for _, flow := range s.flows {
		if want(flow) != s.passes(flow) {
			s.t.Fatalf("%s: %+v passes the rulesets: %t, want %t", what, flow, !want(flow), want(flow))
		}
	}
	s.send(what, 0, func() {}, want)
	var done sync.WaitGroup
	var kept []*talk
	for _, one := range s.conversations {
		now := want(one.Connection)
		if one.forbidden == now { // cut, and allowed again
			_ = one.Close()
			continue
		}
		if now {
			kept = append(kept, one)
		}
		done.Go(func() { s.expect(what+", established", one, now) })
	}
	s.conversations = kept
	for range 8 {
		flow := policymodel.Of(c, s.flows...)
		flow.Protocol = policy.TCP
		one, allowed := &talk{Connection: flow}, want(flow)
		dialer := net.Dialer{
			LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(flow.From, 0)), Timeout: patience(allowed),
		}
		if allowed && len(s.conversations) < 12 {
			s.conversations = append(s.conversations, one)
		}
		done.Go(func() {
			var err error
			s.at[flow.From].Do(func() { one.Conn, err = dialer.Dial("tcp", netip.AddrPortFrom(flow.To, flow.Port).String()) })
			if (err == nil) != allowed {
				s.t.Errorf("%s: %+v: %v, want it to begin: %t", what, flow, err, allowed)
			}
			if err == nil {
				s.t.Cleanup(func() { _ = one.Close() })
				s.expect(what, one, allowed)
			}
		})
	}
	done.Wait()
	if s.t.Failed() {
		s.t.FailNow()
	}
}

// patience is long for what has to come, and short for what must not.
func patience(allowed bool) time.Duration {
	if allowed {
		return 10 * time.Second
	}
	return 100 * time.Millisecond
}

func (s *schedule) expect(what string, c *talk, passes bool) {
	_ = c.SetDeadline(time.Now().Add(patience(passes)))
	_, err := c.Write([]byte("x"))
	if err == nil {
		_, err = c.Read(make([]byte, 1))
	}
	if (err == nil) != passes {
		s.t.Errorf("%s: %+v: %v, want it to pass: %t", what, c.Connection, err, passes)
	}
	if !passes {
		_ = c.Close()
	}
}

// start starts a node's agent: it remembers nothing.
func (s *schedule) start(n *enforcer) {
	s.t.Helper()
	var err error
	n.space.Do(func() { n.table, err = NewPolicyTable() })
	if err != nil {
		s.t.Fatal(err)
	}
	n.index = s.world.Index(n.name)
}

// TestKernelsEnforceRandomPolicies changes policies, pods and namespaces of three nodes at random,
// one of which may be without its agent. Packets are sent all the time.
func TestKernelsEnforceRandomPolicies(t *testing.T) {
	s := newSchedule(t)
	for seed := range uint64(2) {
		c := policymodel.Chooser{Rand: rand.New(rand.NewPCG(seed, 1))}
		s.world = policymodel.New()
		for i, n := range s.nodes {
			s.world.Nodes[n.name] = policy.Node{PodCIDRs: policymodel.PodCIDRs(i)}
			n.index = nil
		}
		for range 20 { // a cluster that is not empty
			c.Change(s.world)
		}
		for round := range 12 {
			what := fmt.Sprintf("seed %d, round %d", seed, round)
			for range c.IntN(6) {
				change := c.Change(s.world)
				for _, n := range s.nodes {
					if n.index != nil {
						change(n.index)
					}
				}
			}
			complete := true
			for _, i := range c.Perm(len(s.nodes)) {
				n := s.nodes[i]
				switch {
				case n.index != nil && c.Some(6):
					n.index = nil
				case n.index == nil && (round == 0 || c.Some(2)):
					s.start(n)
				}
				if c.Some(8) { // another program's commit
					n.space.Run("nft", "add", "table", "inet", fmt.Sprint("foreign-", round))
				}
				if n.index == nil {
					complete = false
					continue
				}
				s.apply(n, what)
			}
			s.calm(c, what, complete)
		}
		// The last policy ends while packets pass.
		policies := maps.Clone(s.world.Policies)
		for _, all := range []map[policy.Name]policy.Policy{nil, policies, nil, policies, nil} {
			s.world.Policies = maps.Clone(all)
			for _, n := range s.nodes {
				s.start(n)
				s.apply(n, "without policies")
			}
		}
		s.calm(c, "without policies", true)
	}
}
