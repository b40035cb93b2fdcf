//go:build linux

package packets

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

// Pods of dedicated servers are hosts of the vSwitch's subnet: its gateway resolves them by ARP,
// and there is no route to them in the cloud's network.
func TestPodsOfDedicatedServers(t *testing.T) {
	var routes intoVSwitch
	f := start(t, netlab.Options{
		Machines: []string{"cloud"}, VSwitch: true,
		ManagerArgs: []string{"--node-monitor-period=500ms"},
		Cloud:       hcloudsim.Options{OnChange: routes.follow},
	})
	joined := []func(){followJoin(t, f, "one"), followJoin(t, f, "two")}
	if err := f.AddDedicated(t.Context(), "one", "two"); err != nil {
		t.Fatal(err)
	}
	for _, told := range joined {
		told()
	}
	v := &vSwitch{f: f, cloud: f.Machine("cloud"), one: f.Machine("one"), two: f.Machine("two")}
	answerEverywhere(t, f, v.cloud, v.one, v.two)
	v.pods = slices.Concat(
		runPods(t, f, nil, [2]string{"pod-cloud", "cloud"}),
		runPods(t, f, nil, [2]string{"pod-one", "one"}, [2]string{"neighbor", "one"}, [2]string{"pod-two", "two"}))
	serveWeb(t, runPods(t, f, map[string]string{"app": "web"}, [2]string{"web", "one"})[0], false)
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"Nodes are described by whoever rents their servers out", v.described},
		{"the kernel has what brings packets to pods, and no more", v.kernel},
		{"every pod reaches every pod under its own address", func(t *testing.T) { everyPodReachesEveryPod(t, v.pods) }},
		{"pods and nodes reach each other", v.nodes},
		{"the gateway knows pods by their node's hardware address", v.gateway},
		{"pods reach others under their node's addresses", v.strangers},
		{"large packets fit", func(t *testing.T) {
			manyBytes(t, v.pods[0], v.pods[1])
			manyBytes(t, v.pods[1], v.pods[0])
			manyBytes(t, v.pods[1], v.pods[3])
		}},
		{"an agent's death and its upgrade lose no packet", v.agentRestarts},
		{"everything comes back with the interface", v.linkDown},
		{"load balancers reach a pod of a dedicated server", v.loadBalancers},
		{"a dedicated server is given back, and another joins", v.comeAndGo},
		{"what is not documented of the gateway has the documented outcome", v.gateways},
		{"cleanup leaves a machine as it was", v.cleanup},
	} {
		// Each step requires that the previous one succeeded.
		if !t.Run(step.name, step.run) {
			break
		}
	}
	routes.expectNone(t)
}

// vSwitch is the lab of these tests.
type vSwitch struct {
	f               *netlab.Lab
	cloud, one, two *netlab.Machine
	pods            []*netlab.Pod // on cloud, one, one, two
	byPrivate       *published    // a pod on one, by private addresses
}

func (v *vSwitch) kernel(t *testing.T) {
	own, others := podCIDRs(t, v.f, "one"), podCIDRs(t, v.f, "two")
	for m, want := range map[*netlab.Machine][]string{
		v.one: {
			"10.244.0.0/16 via 10.1.0.1 dev vswitch",
			fmt.Sprintf("%s via %s dev vswitch", others[0], v.two.Private),
			fmt.Sprintf("unreachable %s", own[0]), fmt.Sprintf("unreachable %s", own[1]),
		},
		// The network's own route covers the pods of dedicated servers too.
		v.cloud: {fmt.Sprintf("unreachable %s", podCIDRs(t, v.f, "cloud")[0]), fmt.Sprintf("unreachable %s", podCIDRs(t, v.f, "cloud")[1])},
	} {
		got := strings.Split(ourRoutes(t, m), "\n")
		matches := len(got) == len(want)
		for _, w := range want {
			matches = matches && slices.ContainsFunc(got, func(line string) bool { return strings.HasPrefix(line, w+" ") })
		}
		if !matches {
			t.Errorf("the routes of %s are %q, want %q", m.Name, got, want)
		}
	}
	if n := strings.Count(proxies(t, v.one), "dev vswitch"); n != 256 {
		t.Errorf("ARP is answered for %d addresses, of a podCIDR of 256", n)
	}
	if got := proxies(t, v.cloud); got != "" {
		t.Errorf("a cloud server answers ARP for %s", got)
	}
	for pod, mtu := range map[*netlab.Pod]string{v.pods[0]: "mtu 1450", v.pods[1]: "mtu 1400"} {
		if out, err := pod.Namespace.Run(t.Context(), "ip", "link", "show", "eth0"); err != nil || !strings.Contains(out, mtu) {
			t.Errorf("the interface of %s is %s, want %s (%v)", pod.Name, out, mtu, err)
		}
	}
}

func (v *vSwitch) nodes(t *testing.T) {
	for _, p := range v.pods {
		for _, m := range []*netlab.Machine{v.cloud, v.one, v.two} {
			reaches(t, of(p), ownPort(m.Private), m.Name, p.IPv4, "tcp")
			if m == p.Machine {
				continue // its source would be an address of the pod's own interface
			}
			reaches(t, machine(m), echo(p.IPv4), p.Name, m.Private, both()...)
		}
	}
}

// hardwareAddress is the hardware address of a machine's interface on the vSwitch.
func hardwareAddress(t *testing.T, m *netlab.Machine) string {
	t.Helper()
	words := strings.Fields(run(t, m, "ip", "-o", "link", "show", "vswitch"))
	at := slices.Index(words, "link/ether")
	if at < 0 {
		t.Fatalf("on %s: %q", m.Name, words)
	}
	return words[at+1]
}

func (v *vSwitch) gateway(t *testing.T) {
	if err := v.f.ForgetNeighbors(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, p := range v.pods[1:] {
		reaches(t, of(v.pods[0]), echo(p.IPv4), p.Name, v.pods[0].IPv4, both()...)
		got, err := v.f.Neighbor(t.Context(), p.IPv4)
		if want := hardwareAddress(t, p.Machine); err != nil || got != want {
			t.Errorf("the gateway knows %s of %s by %q, want %s (%v)", p.IPv4, p.Name, got, want, err)
		}
	}
	// An address without a pod has no ARP entry.
	nobody := v.pods[1].IPv4
	for range 50 {
		nobody = nobody.Next()
	}
	refused(t, of(v.pods[0]), echo(nobody), "tcp")
	if got, err := v.f.Neighbor(t.Context(), nobody); err != nil || got != "" {
		t.Errorf("the gateway knows %s, which no pod has, by %s (%v)", nobody, got, err)
	}
}

// strangers are an external host, and one of the subnet that is no node: it needs no route to reach
// pods, but no pod accepts its packets.
func (v *vSwitch) strangers(t *testing.T) {
	stranger, err := v.f.RentDedicated(t.Context(), "stranger")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.f.Serve(t.Context(), stranger.Namespace, stranger.Name, hostPort); err != nil {
		t.Fatal(err)
	}
	for _, p := range v.pods {
		reaches(t, of(p), ownPort(netlab.OutsideIPv4), "outside", p.Machine.Public.IPv4, both()...)
		reaches(t, of(p), ownPort(stranger.Private), stranger.Name, p.Machine.Private, both()...)
		if p.Machine.Dedicated { // it has no route to the other pods
			refused(t, machine(stranger), echo(p.IPv4), both()...)
		}
	}
}

// traffic starts streams between pods of each two kinds of machines, both ways.
func (v *vSwitch) traffic(t *testing.T) []*netlab.Stream {
	t.Helper()
	var streams []*netlab.Stream
	for _, pair := range [][2]int{{0, 1}, {1, 0}, {1, 3}, {3, 1}} {
		s, err := netlab.StartStream(t.Context(), v.pods[pair[0]].Namespace, echo(v.pods[pair[1]].IPv4),
			pace)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Stop() })
		streams = append(streams, s)
	}
	flows(t, streams, aWhile)
	return streams
}

// agentRestarts makes the gateway resolve a pod while its node's agent is not running.
func (v *vSwitch) agentRestarts(t *testing.T) {
	streams := v.traffic(t)
	v.one.KillAgent()
	flows(t, streams, aWhile)
	if err := v.f.ForgetNeighbors(t.Context()); err != nil {
		t.Fatal(err)
	}
	flows(t, streams, aWhile)
	before := proxies(t, v.one)
	start := func() {
		t.Helper()
		if err := v.one.StartAgent(t.Context()); err != nil {
			t.Fatal(err)
		}
		ready(t, v.one)
	}
	start()
	flows(t, streams, aWhile)
	if err := v.one.StopAgent(t.Context()); err != nil {
		t.Fatal(err)
	}
	flows(t, streams, aWhile)
	start()
	flows(t, streams, aWhile)
	unhurt(t, streams)
	if after := proxies(t, v.one); after != before || strings.Count(after, "dev vswitch") != 256 {
		t.Errorf("ARP is answered for\n%s\nbefore for\n%s", after, before)
	}
}

// proxies returns the addresses for which a machine answers ARP.
func proxies(t *testing.T, m *netlab.Machine) string {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(run(t, m, "ip", "neighbor", "show", "proxy")), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func (v *vSwitch) linkDown(t *testing.T) {
	routes, answers := ourRoutes(t, v.one), proxies(t, v.one)
	if err := v.one.SetVSwitch(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	refused(t, of(v.pods[0]), echo(v.pods[1].IPv4), "tcp")
	if err := v.one.SetVSwitch(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	routesAre(t, v.one, routes)
	await(t, "ARP is answered as before", func() string {
		if now := proxies(t, v.one); now != answers {
			return fmt.Sprintf("for\n%s\nwant\n%s", now, answers)
		}
		return ""
	})
	everyPodReachesEveryPod(t, v.pods)
}

// cleanup removes the agent from a machine that has had a pod.
func (v *vSwitch) cleanup(t *testing.T) {
	three, err := v.f.RentDedicated(t.Context(), "three")
	if err != nil {
		t.Fatal(err)
	}
	bare := state(t, three)
	joined := followJoin(t, v.f, "three")
	if err := three.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := three.StartAgent(t.Context()); err != nil {
		t.Fatal(err)
	}
	ready(t, three)
	joined()
	p := runPods(t, v.f, nil, [2]string{"pod-three", "three"})[0]
	everyPodReachesEveryPod(t, []*netlab.Pod{v.pods[0], v.pods[1], p})
	if err := p.Delete(t.Context()); err != nil {
		t.Error(err)
	}
	if during := difference(bare, state(t, three)); !strings.Contains(during, "dev vswitch proxy") || !strings.Contains(during, "vswitch/proxy_delay:0") {
		t.Fatalf("the agent changed less than it should have:\n%s", during)
	}
	if err := three.StopAgent(t.Context()); err != nil {
		t.Fatal(err)
	}
	said, err := three.Cleanup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if left := difference(bare, state(t, three)); left != "" {
		t.Errorf("left behind:\n%s\ncleanup said:\n%s", left, said)
	}
}
