//go:build linux

package packets

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/routes"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

// A network's table takes the routes of two nodes only. WireGuard tunnels connect a third node
// that is in the network, and a fourth that is outside.
func TestNodesBeyondTheRouteTable(t *testing.T) {
	needLab(t)
	wireGuard, err := cluster.BuildWireGuard(context.WithoutCancel(t.Context()), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f := start(t, netlab.Options{
		Machines: []string{"one", "two"}, WireGuard: wireGuard,
		Settings: "routes: {limit: 2}\nwireguard: overflow\n",
	})
	if err := f.AddMachines(t.Context(), "three"); err != nil {
		t.Fatal(err)
	}
	if err := f.AddOutside(t.Context(), "four"); err != nil {
		t.Fatal(err)
	}
	machines := []*netlab.Machine{f.Machine("one"), f.Machine("two"), f.Machine("three"), f.Machine("four")}
	for name, want := range map[string]routes.Reach{"one": "", "two": "", "three": routes.NoRoom, "four": routes.NoNetwork} {
		node, err := f.Client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := kube.ReachOf(node); got != want {
			t.Errorf("Node %s has the reach %q, want %q", name, got, want)
		}
	}
	answerEverywhere(t, f, machines...)
	filterReversePaths(t, machines...)
	clients := runPods(t, f, map[string]string{"app": "client"}, [2]string{"client-one", "one"}, [2]string{"client-three", "three"}, [2]string{"client-four", "four"})
	served := runPods(t, f, map[string]string{"app": "server"}, [2]string{"server-two", "two"}, [2]string{"server-three", "three"}, [2]string{"server-four", "four"})
	all := append(clients, served...)

	t.Run("every pod reaches every pod", func(t *testing.T) { everyPodReachesEveryPod(t, all) })
	t.Run("pods and nodes reach each other", func(t *testing.T) {
		for _, p := range all {
			for _, m := range machines {
				if m == p.Machine {
					continue
				}
				nodeReachesPod(t, m, p)
				podReachesNode(t, p, m)
			}
		}
	})
	t.Run("a Service is reached by its ClusterIP", func(t *testing.T) { clusterIPs(t, f, clients, served) })
	t.Run("packets of every size arrive", func(t *testing.T) {
		for _, from := range clients {
			for _, to := range served {
				manyBytes(t, from, to)
			}
		}
	})
	t.Run("node ports lead to pods on every node", func(t *testing.T) { nodePorts(t, f, machines, clients, served) })
	t.Run("pods reach a Service of pods with their nodes' network", func(t *testing.T) { hostNetwork(t, f, machines, clients) })
	t.Run("load balancers reach pods on every node", func(t *testing.T) { balanced(t, f, served) })
	t.Run("pods reach the outside", func(t *testing.T) {
		for _, p := range all {
			reaches(t, of(p), ownPort(netlab.OutsideIPv4), "outside", p.Machine.Public.IPv4, both()...)
		}
	})
}

// filterReversePaths has machines drop a packet that arrives by another interface than a reply to
// it would leave by, as some distributions do.
func filterReversePaths(t *testing.T, machines ...*netlab.Machine) {
	t.Helper()
	for _, m := range machines {
		if err := m.Namespace.Sysctl("net/ipv4/conf/all/rp_filter", "1"); err != nil {
			t.Fatal(err)
		}
	}
}

// nodeReachesPod expects a reply; the source is the node's, or in its podCIDR in a tunnel.
func nodeReachesPod(t *testing.T, m *netlab.Machine, p *netlab.Pod) {
	t.Helper()
	answer, err := netlab.Ask(t.Context(), m.Namespace, "tcp", echo(p.IPv4))
	if err != nil || answer.Name != p.Name {
		t.Errorf("%s asked %s: %s answered, %v", m.Name, p.Name, answer.Name, err)
	}
}

func podReachesNode(t *testing.T, p *netlab.Pod, m *netlab.Machine) {
	t.Helper()
	to := m.Private
	if m.Outside {
		to = m.Public.IPv4
	}
	answer, err := netlab.Ask(t.Context(), p.Namespace, "tcp", netip.AddrPortFrom(to, hostPort))
	if err != nil || answer.Name != m.Name {
		t.Errorf("%s asked %s at %s: %s answered, %v", p.Name, m.Name, to, answer.Name, err)
	}
	if !m.Outside && !p.Machine.Outside && !p.Machine.BehindNAT && answer.Source.Addr() != p.IPv4 {
		t.Errorf("%s saw %s, and not the address of %s", m.Name, answer.Source, p.Name)
	}
}

// A machine behind NAT, of no provider, is connected by tunnels that it keeps open: others reach it
// after a time without a packet in which its gateway forgets.
func TestAMachineBehindNAT(t *testing.T) {
	needLab(t)
	wireGuard, err := cluster.BuildWireGuard(context.WithoutCancel(t.Context()), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f := start(t, netlab.Options{Machines: []string{"one"}, WireGuard: wireGuard, IPv4Only: true, Settings: "wireguard: overflow\n"})
	if err := f.AddOutside(t.Context(), "two"); err != nil {
		t.Fatal(err)
	}
	if err := f.AddBehindNAT(t.Context(), "home"); err != nil {
		t.Fatal(err)
	}
	one, two, home := f.Machine("one"), f.Machine("two"), f.Machine("home")
	answerEverywhere(t, f, one, two, home)
	filterReversePaths(t, one, two, home)
	pods := runPods(t, f, map[string]string{"app": "server"}, [2]string{"pod-one", "one"}, [2]string{"pod-two", "two"}, [2]string{"pod-home", "home"})
	check := func(t *testing.T) {
		everyPodReachesEveryPod(t, pods)
		for _, m := range []*netlab.Machine{one, two} {
			nodeReachesPod(t, m, pods[2])
			podReachesNode(t, pods[2], m)
			nodeReachesPod(t, home, pods[slices.Index([]*netlab.Machine{one, two}, m)])
		}
		manyBytes(t, pods[0], pods[2])
		manyBytes(t, pods[2], pods[1])
	}
	t.Run("pods and nodes reach each other", check)
	t.Run("underlay-agent check shows handshakes and bytes", func(t *testing.T) {
		got, err := home.CheckAgent(t.Context())
		for _, m := range []*netlab.Machine{one, two} {
			line := regexp.MustCompile(fmt.Sprintf(`(?m)^%s +51820 +%s:51820 +\d+s ago +[1-9]\d* +[1-9]\d*$`, m.Name, regexp.QuoteMeta(m.Public.IPv4.String())))
			if err != nil || !line.MatchString(got) {
				t.Errorf("no tunnel to %s in\n%s(%v)", m.Name, got, err)
			}
		}
	})
	t.Run("a Service is reached by its ClusterIP", func(t *testing.T) {
		for _, p := range pods {
			answeredBy(t, of(p), echo(serviceOf(t, f, p.Name)), podNames(pods)...)
		}
	})
	t.Run("node ports lead to pods behind NAT", func(t *testing.T) {
		port := nodePort(t, f, "node-port", "server", corev1.ServiceExternalTrafficPolicyCluster)
		for _, m := range []*netlab.Machine{one, two} {
			answeredBy(t, outside(f), netip.AddrPortFrom(m.Public.IPv4, port), podNames(pods)...)
		}
	})
	t.Run("pods behind NAT reach the outside", func(t *testing.T) {
		reaches(t, of(pods[2]), ownPort(netlab.OutsideIPv4), "outside", home.Public.IPv4, both()...)
	})
	t.Run("it is reached after a silence", func(t *testing.T) {
		time.Sleep(netlab.NATTimeout + 5*time.Second) // in which the gateway would forget it
		check(t)
	})
}

// serviceOf creates a Service of all servers, and returns its ClusterIP.
func serviceOf(t *testing.T, f *netlab.Lab, name string) netip.Addr {
	t.Helper()
	service, err := f.Client.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "for-" + name},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "server"}, Ports: []corev1.ServicePort{{Port: netlab.EchoPort, Protocol: corev1.ProtocolTCP}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return netip.MustParseAddr(service.Spec.ClusterIP)
}
