//go:build linux

package packets

import (
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

// On the cloud IPv4 uses the network's routes, and IPv6 each server's own prefix.
func TestPodsOnTheCloud(t *testing.T) {
	f := start(t, netlab.Options{Machines: []string{"one", "two", "three"}})
	one, two, three := f.Machine("one"), f.Machine("two"), f.Machine("three")
	answerEverywhere(t, f, one, two, three)
	pods := runPods(t, f, map[string]string{"app": "client"}, [2]string{"client", "one"}, [2]string{"neighbor", "one"})
	served := runPods(t, f, map[string]string{"app": "server"}, [2]string{"server-two", "two"}, [2]string{"server-three", "three"})
	all := append(pods, served...)
	for _, p := range all {
		if own := p.Machine.Public.IPv6Prefix; !own.Contains(p.IPv6) {
			t.Errorf("%s has %s, not of its server's %s", p.Name, p.IPv6, own)
		}
	}

	t.Run("every pod reaches every pod", func(t *testing.T) { everyPodReachesEveryPod(t, all) })
	t.Run("pods and nodes reach each other", func(t *testing.T) {
		for _, p := range all {
			for _, m := range []*netlab.Machine{one, two, three} {
				reaches(t, of(p), ownPort(m.Private), m.Name, p.IPv4, "tcp")
				reaches(t, of(p), ownPort(m.Public.IPv6), m.Name, p.IPv6, "tcp")
				if m == p.Machine {
					continue // its source would be an address of the pod's own interface
				}
				reaches(t, machine(m), echo(p.IPv4), p.Name, m.Private, both()...)
				reaches(t, machine(m), echo(p.IPv6), p.Name, m.Public.IPv6, both()...)
			}
		}
	})
	t.Run("a Service is reached by its ClusterIP", func(t *testing.T) { clusterIPs(t, f, pods, served) })
	t.Run("pods reach the outside", func(t *testing.T) {
		for _, p := range all {
			reaches(t, of(p), ownPort(netlab.OutsideIPv4), "outside", p.Machine.Public.IPv4, both()...)
			reaches(t, of(p), ownPort(netlab.OutsideIPv6), "outside", p.IPv6, both()...)
		}
	})
	t.Run("the outside reaches no pod", func(t *testing.T) { closedToTheOutside(t, f, served[0]) })
	t.Run("the cloud drops what is nobody's", func(t *testing.T) { foreignSource(t, f, one, two) })
	t.Run("connectivity finds a route that the cloud has lost", func(t *testing.T) { lostRoute(t, f) })
	t.Run("a machine joins, and another is given back", func(t *testing.T) { comeAndGo(t, f, pods, served[1]) })
}

// lostRoute expects that underlayctl connectivity finds the node whose pods have no route, while no
// manager repairs it.
func lostRoute(t *testing.T, f *netlab.Lab) {
	kubelets := runProbes(t, f)
	_, client := rightsOf(t, f)
	two := podCIDRs(t, f, "two")[0]
	f.Manager.Kill()
	if err := f.Cloud.DeleteRoute(f.Network.ID, two); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, path := range []string{"one→two", "three→two", "two→one", "two→three"} {
		want = append(want, "pod 4 closed "+path)
	}
	broken{name: "lost", want: append(want, "health-check 4 closed two→one", "health-check 4 closed two→three")}.try(t, f, client, kubelets)
	if err := f.StartManager(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, "the route is back", func() string {
		for _, r := range f.Cloud.DataPlane().Networks[0].Routes {
			if r.Destination == two {
				return ""
			}
		}
		return "there is none"
	})
}

// comeAndGo expects the cloud's routes to follow machines: a new one's pods are reachable, although
// it has the address of a deleted one, and the route of the deleted one's pods is deleted.
func comeAndGo(t *testing.T, f *netlab.Lab, stay []*netlab.Pod, leaves *netlab.Pod) {
	m := leaves.Machine
	gone := podCIDRs(t, f, m.Name)[0]
	if err := m.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := f.AddMachines(t.Context(), "four"); err != nil {
		t.Fatal(err)
	}
	if f.Machine("four").Private != m.Private {
		t.Fatalf("the new machine has %s, and not %s once more", f.Machine("four").Private, m.Private)
	}
	everyPodReachesEveryPod(t, append(stay, runPods(t, f, nil, [2]string{"pod-four", "four"})...))
	await(t, "the network has no route to the pods of the machine that is gone", func() string {
		for _, r := range f.Cloud.DataPlane().Networks[0].Routes {
			if r.Destination == gone {
				return fmt.Sprintf("there is %s via %s", r.Destination, r.Gateway)
			}
		}
		return ""
	})
}

// clusterIPs sends requests to both addresses of a Service until every pod behind it has replied.
func clusterIPs(t *testing.T, f *netlab.Lab, clients, servers []*netlab.Pod) {
	for _, addr := range dualStack(t, f, "servers", map[string]string{"app": "server"}) {
		for _, client := range clients {
			answeredByAll(t, client, addr, servers)
		}
	}
}

// dualStack creates a Service for EchoPort, and returns its addresses.
func dualStack(t *testing.T, f *netlab.Lab, name string, selector map[string]string) []netip.Addr {
	t.Helper()
	service, err := f.Client.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{
			Selector: selector, IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyRequireDualStack),
			Ports: []corev1.ServicePort{{Port: netlab.EchoPort, Protocol: corev1.ProtocolTCP}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var addrs []netip.Addr
	for _, ip := range service.Spec.ClusterIPs {
		addrs = append(addrs, netip.MustParseAddr(ip))
	}
	return addrs
}

// answeredByAll sends requests to a Service's address until every pod behind it has replied, with
// the client's own address as the observed source.
func answeredByAll(t *testing.T, client *netlab.Pod, addr netip.Addr, servers []*netlab.Pod) {
	t.Helper()
	missing := map[string]bool{}
	for _, s := range servers {
		missing[s.Name] = true
	}
	await(t, client.Name+" is answered by every pod behind "+addr.String(), func() string {
		answer, err := netlab.Ask(t.Context(), client.Namespace, "tcp", echo(addr))
		if err != nil {
			return err.Error()
		}
		if want := family(addr, client.IPv4, client.IPv6); answer.Source.Addr() != want {
			t.Errorf("%s asked %s: %s saw %s, want %s", client.Name, addr, answer.Name, answer.Source.Addr(), want)
		}
		delete(missing, answer.Name)
		if len(missing) > 0 {
			return "some have not answered"
		}
		return ""
	})
}

// closedToTheOutside expects a pod's public address to be closed, unless its agent is configured
// otherwise.
func closedToTheOutside(t *testing.T, f *netlab.Lab, p *netlab.Pod) {
	m := p.Machine
	// There are routes to its machine, and back from the pod.
	reaches(t, outside(f), ownPort(m.Public.IPv6), m.Name, netlab.OutsideIPv6, "tcp")
	refused(t, outside(f), echo(p.IPv6), both()...)
	restart := func(args ...string) {
		t.Helper()
		if err := m.StopAgent(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := m.StartAgent(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}
	restart("--filter-inbound=false")
	reaches(t, outside(f), echo(p.IPv6), p.Name, netlab.OutsideIPv6, both()...)
	restart()
	await(t, "it is closed again", func() string {
		if answer, err := netlab.Ask(t.Context(), f.Outside(), "tcp", echo(p.IPv6)); err == nil {
			return answer.Name + " answers"
		}
		return ""
	})
	refused(t, outside(f), echo(p.IPv6), both()...)
}

// foreignSource shows that the cloud router drops foreign sources as the real one does: otherwise
// the tests above would prove less.
func foreignSource(t *testing.T, f *netlab.Lab, from, to *netlab.Machine) {
	before, err := f.Dropped(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// The private network has no route back to the source, but this test is about the source
	// filter: the packet itself must be dropped, as the counter shows.
	if _, err := from.Namespace.Run(t.Context(), "ip", "route", "replace", to.Private.String(), "via", "10.0.0.1", "dev", "private", "src", from.Public.IPv4.String()); err != nil {
		t.Fatal(err)
	}
	refused(t, machine(from), ownPort(to.Private), "tcp")
	if _, err := from.Namespace.Run(t.Context(), "ip", "route", "del", to.Private.String()); err != nil {
		t.Fatal(err)
	}
	if after, err := f.Dropped(t.Context()); err != nil || after <= before {
		t.Errorf("dropped %d packets, before %d (%v)", after, before, err)
	}
}
