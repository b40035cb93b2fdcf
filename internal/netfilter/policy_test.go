//go:build linux

package netfilter

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/policy"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

// policyLab is a node, n1, with three pods as the CNI plugin ptp makes them, and another machine,
// which has the addresses of two pods of the node n2 and one outside of the cluster.
type policyLab struct {
	t     *testing.T
	node  *netns.Space
	far   *netns.Space
	pods  []*netns.Space
	table *PolicyTable
	nft   *counting
	index *policy.Index

	logGroup uint16
}

var outsides = [2]string{"192.0.2.9", "2001:db8:99::9"}

func podAddress(node, host, f int) string {
	return fmt.Sprintf([]string{"10.244.%d.%d", "fd00:%d::%d"}[f], node, host)
}

func newPolicyLab(t *testing.T) *policyLab {
	t.Helper()
	l := &policyLab{t: t, node: netns.New(t), far: netns.New(t)}
	n := l.node
	n.Sysctl("net/ipv4/ip_forward", "1")
	n.Sysctl("net/ipv6/conf/all/forwarding", "1")
	netns.Link(n, "eth0", l.far, "eth0")
	addresses(n, "eth0", "10.0.0.1/24", "2001:db8:77::1/64")
	addresses(l.far, "eth0", "10.0.0.2/24", "2001:db8:77::2/64")
	for f, via := range []string{"10.0.0.2", "2001:db8:77::2"} {
		bits := []string{"/32", "/128"}[f]
		for host := 2; host < 4; host++ {
			addresses(l.far, "lo", podAddress(2, host, f)+bits)
		}
		addresses(l.far, "lo", outsides[f]+bits)
		routes(n, via, "default")
	}
	routes(l.far, "10.0.0.1", "default")
	routes(l.far, "2001:db8:77::1", "default")
	for host := 2; host < 5; host++ {
		pod, veth := netns.New(t), fmt.Sprint("veth", host)
		netns.Link(n, veth, pod, "eth0")
		addresses(n, veth, "10.244.1.1/32", "fd00:1::1/128")
		for f, gateway := range []string{"10.244.1.1", "fd00:1::1"} {
			family, bits := []string{"-4", "-6"}[f], []string{"/32", "/128"}[f]
			addresses(pod, "eth0", podAddress(1, host, f)+bits)
			n.Run("ip", family, "route", "add", podAddress(1, host, f), "dev", veth)
			pod.Run("ip", family, "route", "add", gateway, "dev", "eth0")
			routes(pod, gateway, "default")
		}
		l.pods = append(l.pods, pod)
	}
	l.restart()
	l.index = policy.NewIndex("n1")
	nodes := map[string]policy.Node{}
	for i := 1; i <= 2; i++ {
		nodes[fmt.Sprint("n", i)] = policy.Node{PodCIDRs: prefixes(fmt.Sprintf("10.244.%d.0/24", i), fmt.Sprintf("fd00:%d::/64", i))}
	}
	l.index.SetNodes(nodes)
	l.index.SetNamespace("a", map[string]string{"name": "a"})
	return l
}

// restart forgets what the process knew.
func (l *policyLab) restart() {
	l.t.Helper()
	var err error
	l.node.Do(func() { l.table, err = NewPolicyTable() })
	if err != nil {
		l.t.Fatal(err)
	}
	l.nft = &counting{Interface: l.table.nft}
	l.table.nft = l.nft
}

func (l *policyLab) setPod(node, host int, app string) {
	l.index.SetPod(policy.Pod{
		Name: policy.Name{Namespace: "a", Name: fmt.Sprintf("p%d-%d", node, host)}, Node: fmt.Sprint("n", node),
		Labels:    map[string]string{"app": app},
		Addresses: addrs(podAddress(node, host, 0), podAddress(node, host, 1)),
		Ports:     []policy.NamedPort{{Name: "web", Protocol: policy.UDP, Port: uint16(80 + host%2)}},
	})
}

func (l *policyLab) apply() (policy.Ruleset, []string) {
	l.t.Helper()
	rules := l.index.Ruleset()
	rules.LogGroup = l.logGroup
	var changed []string
	var err error
	l.node.Do(func() { changed, err = l.table.Apply(l.t.Context(), &rules) })
	if err != nil {
		l.t.Fatal(err)
	}
	return rules, changed
}

func (l *policyLab) list() string {
	return l.node.Run("nft", "--stateless", "list", "table", "inet", PolicyTableName)
}

func selector(app string) *policy.Selector {
	return &policy.Selector{{Key: "app", Operator: policy.In, Values: []string{app}}}
}

func randomPolicy(r *rand.Rand, i int) policy.Policy {
	allow := func() (a policy.Allow) {
		for range r.IntN(3) {
			p := policy.Peer{Pods: selector([]string{"x", "y"}[r.IntN(2)])}
			if r.IntN(2) == 0 {
				all := [][]string{{"10.244.0.0/16", "10.244.1.2/31"}, {"0.0.0.0/0", "10.244.2.2/32"}, {"fd00::/16", "fd00:1::3/128"}, {"2001:db8:99::/48"}}[r.IntN(4)]
				p = policy.Peer{Block: netip.MustParsePrefix(all[0]), Except: prefixes(all[1:]...)}
			}
			a.Peers = append(a.Peers, p)
		}
		for range r.IntN(3) {
			a.Ports = append(a.Ports, []policy.Port{
				{Protocol: policy.UDP, Number: 80},
				{Protocol: policy.UDP, Number: 81, End: 90},
				{Protocol: policy.TCP},
				{Protocol: policy.UDP, Name: "web"},
				{Protocol: policy.UDP},
			}[r.IntN(5)])
		}
		return a
	}
	p := policy.Policy{
		Name: policy.Name{Namespace: "a", Name: fmt.Sprint("policy", i)}, Pods: *selector([]string{"x", "y"}[r.IntN(2)]),
		Types: [][]policy.Direction{nil, {policy.Egress}, {policy.Ingress, policy.Egress}}[r.IntN(3)],
	}
	p.Ingress, p.Egress = []policy.Allow{allow()}, []policy.Allow{allow()}
	return p
}

// TestPacketsPassByTheRuleset sends a datagram for each pair and port. Afterwards the same
// table is filled at once by another process, which must be the same as the one that was edited.
func TestPacketsPassByTheRuleset(t *testing.T) {
	l := newPolicyLab(t)
	r := rand.New(rand.NewPCG(1, 2))
	for round := range 12 {
		for range 3 {
			l.setPod(1+r.IntN(2), 2+r.IntN(2), []string{"x", "y", "z"}[r.IntN(3)])
		}
		l.index.SetPolicy(randomPolicy(r, r.IntN(3)))
		if round%4 == 3 {
			l.index.DeletePod(policy.Name{Namespace: "a", Name: "p1-2"})
		}
		rules, _ := l.apply()
		if _, again := l.apply(); len(again) > 0 {
			t.Fatalf("the second time changed %q", again)
		}
		for f := range 2 {
			l.probe(rules, f)
		}
	}
	edited := l.list()
	l.restart()
	l.apply()
	if filled := l.list(); sorted(filled) != sorted(edited) {
		t.Errorf("a table that was edited has\n%s\nand one that was filled\n%s", edited, filled)
	}
}

// probe sends from every address to every other one.
func (l *policyLab) probe(rules policy.Ruleset, f int) {
	l.t.Helper()
	at := map[string]*netns.Space{
		outsides[f]: l.far, podAddress(2, 2, f): l.far, podAddress(2, 3, f): l.far,
	}
	for i, pod := range l.pods {
		at[podAddress(1, 2+i, f)] = pod
	}
	for _, port := range []string{"80", "81"} {
		for to, server := range at {
			var socket net.PacketConn
			var err error
			server.Do(func() { socket, err = net.ListenPacket("udp", net.JoinHostPort(to, port)) })
			if err != nil {
				l.t.Fatal(err)
			}
			want := map[string]bool{}
			for from, client := range at {
				if from == to || client == server {
					continue
				}
				a, b := netip.MustParseAddr(from), netip.MustParseAddr(to)
				want[from] = rules.Allows(policy.Connection{
					From: a, To: b, Protocol: policy.UDP, Port: 80 + uint16(port[1]-'0'),
				})
				l.send(client, from, net.JoinHostPort(to, port), from)
			}
			// What the node itself sends is never filtered, and comes last.
			l.send(l.node, "", net.JoinHostPort(to, port), "end")
			got := received(l.t, socket)
			for from, allowed := range want {
				if got[from] != allowed {
					l.t.Errorf("%s to %s, port %s: arrived %t, want %t\n%s", from, to, port, got[from], allowed, l.list())
				}
			}
			_ = socket.Close()
		}
	}
}

func (l *policyLab) send(client *netns.Space, from, to, text string) {
	l.t.Helper()
	dialer := net.Dialer{}
	if from != "" {
		dialer.LocalAddr = &net.UDPAddr{IP: net.ParseIP(from)}
	}
	client.Do(func() {
		conn, err := dialer.Dial("udp", to)
		if err == nil {
			_, err = conn.Write([]byte(text))
			_ = conn.Close()
		}
		if err != nil {
			l.t.Error(err)
		}
	})
}

// received returns the texts that arrived before "end".
func received(t *testing.T, socket net.PacketConn) map[string]bool {
	t.Helper()
	got := map[string]bool{}
	buffer := make([]byte, 100)
	for !got["end"] {
		_ = socket.SetReadDeadline(time.Now().Add(10 * time.Second))
		n, _, err := socket.ReadFrom(buffer)
		if err != nil {
			t.Fatalf("the last datagram did not arrive: %v; before it: %v", err, got)
		}
		got[string(buffer[:n])] = true
	}
	return got
}

func TestAPolicyCutsForbiddenConnectionsOnly(t *testing.T) {
	l := newPolicyLab(t)
	l.setPod(1, 2, "server")
	l.setPod(1, 3, "other")
	l.setPod(2, 2, "client")
	l.setPod(2, 3, "stranger")
	l.apply()
	seg := &segment{t: t}
	kept := seg.open(l.far, podAddress(2, 2, 0), l.pods[0], podAddress(1, 2, 0))
	cut := seg.open(l.far, podAddress(2, 3, 1), l.pods[0], podAddress(1, 2, 1))
	local := seg.open(l.pods[1], podAddress(1, 3, 0), l.pods[0], podAddress(1, 2, 0))
	ofNode := seg.open(l.node, "10.244.1.1", l.pods[0], podAddress(1, 2, 0))
	elsewhere := seg.open(l.pods[1], podAddress(1, 3, 1), l.far, podAddress(2, 3, 1))

	l.index.SetPolicy(policy.Policy{
		Name: policy.Name{Namespace: "a", Name: "server"}, Pods: *selector("server"),
		Ingress: []policy.Allow{{Peers: []policy.Peer{{Pods: selector("client")}}}},
	})
	_, changed := l.apply()
	if len(changed) != 2 || !strings.HasPrefix(changed[1], "2 connections are cut") {
		t.Errorf("changed: %q, want two connections cut", changed)
	}
	kept.expect("a connection that the policy allows")
	ofNode.expect("a connection of the node")
	elsewhere.expect("a connection between pods that no policy selects")
	for what, c := range map[string]*conversation{"from another node": cut, "within the node": local} {
		// The server first: its packet must not begin the connection again, from the other side.
		c.silent(what, c.server, c.client)
		c.silent(what, c.client, c.server)
	}

	// A pod that ends takes its connections along.
	l.index.DeletePod(policy.Name{Namespace: "a", Name: "p2-2"})
	if _, changed := l.apply(); len(changed) != 2 || !strings.HasPrefix(changed[1], "1 connections are cut") {
		t.Errorf("after the client's end: %q", changed)
	}
	kept.silent("from a pod that ended", kept.client, kept.server)
	ofNode.expect("a connection of the node, still")
}

// silent expects that what one end sends does not reach the other.
func (c *conversation) silent(what string, from, to net.Conn) {
	c.t.Helper()
	if _, err := from.Write([]byte("x")); err != nil {
		return // ended
	}
	_ = to.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
	if n, _ := to.Read(make([]byte, 10)); n > 0 {
		c.t.Errorf("a connection %s: %d bytes arrived after it was cut", what, n)
	}
}

func TestUnknownPodsAreClosed(t *testing.T) {
	l := newPolicyLab(t)
	l.setPod(1, 2, "x")
	_, changed := l.apply()
	if len(changed) == 0 || !strings.Contains(changed[0], "is filled") {
		t.Errorf("changed: %q", changed)
	}
	got := func(client *netns.Space, from string, server *netns.Space, to string) bool {
		t.Helper()
		var socket net.PacketConn
		var err error
		server.Do(func() { socket, err = net.ListenPacket("udp", net.JoinHostPort(to, "80")) })
		if err != nil {
			t.Fatal(err)
		}
		defer socket.Close()
		l.send(client, from, net.JoinHostPort(to, "80"), "it")
		l.send(l.node, "", net.JoinHostPort(to, "80"), "end")
		return received(t, socket)["it"]
	}
	for f := range 2 {
		known, unknown, far := podAddress(1, 2, f), podAddress(1, 3, f), podAddress(2, 2, f)
		if !got(l.far, far, l.pods[0], known) || !got(l.pods[0], known, l.far, far) {
			t.Errorf("%s, which no policy selects, is not reached or reaches nothing", known)
		}
		if got(l.far, far, l.pods[1], unknown) || got(l.pods[1], unknown, l.far, far) ||
			got(l.pods[0], known, l.pods[1], unknown) {
			t.Errorf("%s, of a pod that nobody knows, is open", unknown)
		}
		// With a source address that is not in the node's podCIDRs.
		foreign := []string{"198.51.100.77", "2001:db8:66::77"}[f]
		addresses(l.pods[0], "eth0", foreign+[]string{"/32", "/128"}[f])
		if got(l.pods[0], foreign, l.far, far) {
			t.Errorf("a pod sent packets as %s", foreign)
		}
	}
	l.setPod(1, 3, "x")
	l.apply()
	if !got(l.far, podAddress(2, 2, 0), l.pods[1], podAddress(1, 3, 0)) {
		t.Error("the pod is not open after it is known")
	}
	// While a chain is made or removed, packets may find it without rules.
	l.index.SetPolicy(policy.Policy{Name: policy.Name{Namespace: "a", Name: "x"}, Ingress: []policy.Allow{{}}})
	rules, _ := l.apply()
	for name := range chainsOf(rules) {
		l.node.Run("nft", "flush", "chain", "inet", PolicyTableName, name)
	}
	if got(l.far, podAddress(2, 2, 0), l.pods[1], podAddress(1, 3, 0)) {
		t.Error("a chain without rules is open")
	}
}

// TestRulesWithSCTPNeedNoModule: a kernel without SCTP enforces the other rules of a policy.
func TestRulesWithSCTPNeedNoModule(t *testing.T) {
	l := newPolicyLab(t)
	l.setPod(1, 2, "x")
	l.index.SetPod(policy.Pod{
		Name: policy.Name{Namespace: "a", Name: "signals"}, Node: "n2", Addresses: addrs(podAddress(2, 2, 0), podAddress(2, 2, 1)),
		Ports: []policy.NamedPort{{Name: "m3ua", Protocol: policy.SCTP, Port: 2905}},
	})
	ports := []policy.Port{{Protocol: policy.SCTP, Number: 2905}, {Protocol: policy.SCTP, Number: 7000, End: 7010}, {Protocol: policy.SCTP, Name: "m3ua"}, {Protocol: policy.UDP, Number: 80}}
	l.index.SetPolicy(policy.Policy{Name: policy.Name{Namespace: "a", Name: "x"}, Pods: *selector("x"), Ingress: []policy.Allow{{Ports: ports}}, Egress: []policy.Allow{{Ports: ports}}})
	rules, _ := l.apply()
	if l.nft.commits != 1 || len(rules.Sets) != 1 {
		t.Errorf("%d commits and %d sets, want one of each", l.nft.commits, len(rules.Sets))
	}
	for f := range 2 {
		l.probe(rules, f)
	}
}

// TestAPodElsewhereIsAnEditOfElements also counts what is listed and committed for it.
func TestAPodElsewhereIsAnEditOfElements(t *testing.T) {
	l := newPolicyLab(t)
	l.setPod(1, 2, "x")
	l.index.SetPolicy(policy.Policy{
		Name: policy.Name{Namespace: "a", Name: "x"}, Pods: *selector("x"),
		Ingress: []policy.Allow{{Peers: []policy.Peer{{Pods: selector("y")}}}},
	})
	l.apply()
	l.nft.calls, l.nft.commits = 0, 0
	l.setPod(2, 2, "y")
	if _, changed := l.apply(); len(changed) != 1 || !strings.HasSuffix(changed[0], "0 chains, 0 sets and 2 elements changed") {
		t.Errorf("changed: %q", changed)
	}
	if l.nft.calls != 0 || l.nft.commits != 1 {
		t.Errorf("%d listings and %d commits, want one commit", l.nft.calls, l.nft.commits)
	}
	l.setPod(2, 3, "z") // no policy's peer
	if _, changed := l.apply(); len(changed) != 0 || l.nft.commits != 1 {
		t.Errorf("changed: %q in %d commits", changed, l.nft.commits-1)
	}
}

// TestCommitsOfOthersCauseNoRefill: kube-proxy commits all the time, and a large table takes
// seconds to fill.
func TestCommitsOfOthersCauseNoRefill(t *testing.T) {
	l := newPolicyLab(t)
	l.setPod(1, 2, "x")
	l.index.SetPolicy(policy.Policy{
		Name: policy.Name{Namespace: "a", Name: "x"}, Pods: *selector("x"),
		Ingress: []policy.Allow{{Peers: []policy.Peer{{Pods: selector("y")}}}},
	})
	ctx, cancel := context.WithCancel(t.Context())
	watching := make(chan error, 1)
	go func() { l.node.Do(func() { watching <- l.table.Watch(ctx, func() {}) }) }()
	defer func() { cancel(); <-watching }()
	eventually(t, "it watches", l.table.watching.Load)
	l.apply()
	for i := range 6 {
		l.node.Run("nft", "add", "table", "inet", fmt.Sprint("foreign", i))
		l.setPod(2, 2, []string{"y", "z"}[i%2])
		if _, changed := l.apply(); len(changed) == 0 || !strings.HasSuffix(changed[0], "0 chains, 0 sets and 2 elements changed") {
			t.Errorf("change %d: %q", i, changed)
		}
	}
	// Between two commits of our own, so that the last generation is ours.
	l.node.Run("nft", "add", "rule", "inet", PolicyTableName, toPods, "meta mark 7 accept")
	l.setPod(2, 2, "y")
	l.apply()
	eventually(t, "the foreign rule is removed", func() bool {
		l.apply()
		return !strings.Contains(l.list(), "mark")
	})
}

func TestThePolicyTableIsRepairedAndRemoved(t *testing.T) {
	l := newPolicyLab(t)
	for host := 2; host < 4; host++ {
		l.setPod(1, host, "x")
		l.setPod(2, host, "y")
	}
	for i := range 3 {
		l.index.SetPolicy(randomPolicy(rand.New(rand.NewPCG(uint64(i), 3)), i))
	}
	rules, _ := l.apply()
	want := sorted(l.list())
	for _, damage := range []string{
		"flush table inet underlay-policy",
		"delete table inet underlay-policy",
		"flush map inet underlay-policy to-pods-4",
		"add chain inet underlay-policy forwarded { policy drop ; }",
		"add table inet underlay-policy { flags dormant ; }",
		"add rule inet underlay-policy forwarded accept",
	} {
		l.node.Run("nft", damage)
		if _, changed := l.apply(); len(changed) != 1 || sorted(l.list()) != want {
			t.Errorf("after %q: %q, and the table is\n%s\nwant\n%s", damage, changed, l.list(), want)
		}
	}
	l.nft.refused = 1
	l.setPod(2, 2, "x")
	l.setPod(2, 2, "y")
	l.setPod(1, 2, "z")
	if _, changed := l.apply(); len(changed) != 1 || !strings.Contains(changed[0], "is filled") {
		t.Errorf("after a refused edit: %q", changed)
	}
	l.setPod(1, 2, "x")
	if l.apply(); sorted(l.list()) != want {
		t.Errorf("the table is\n%s", l.list())
	}
	var err error
	l.node.Do(func() { _, err = l.table.Apply(t.Context(), nil) })
	_, listErr := l.node.Try("nft", "list", "table", "inet", PolicyTableName)
	if err != nil || listErr == nil || len(rules.Pods) != 4 {
		t.Errorf("removed: %v, listing: %v, %d pods", err, listErr, len(rules.Pods))
	}
	l.nft.refused = 2
	l.node.Do(func() { _, err = l.table.Apply(t.Context(), &rules) })
	if err == nil || !strings.Contains(err.Error(), ErrDown.Error()) {
		t.Errorf("without a table: %v, want it to say that none stands", err)
	}
}
