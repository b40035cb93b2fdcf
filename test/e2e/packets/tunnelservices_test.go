//go:build linux

package packets

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

// nodePort creates a Service for the EchoPort of an app's pods, and returns its node port.
func nodePort(
	t *testing.T, f *netlab.Lab, name, app string, policy corev1.ServiceExternalTrafficPolicy,
) uint16 {
	t.Helper()
	service, err := f.Client.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, ExternalTrafficPolicy: policy, Selector: map[string]string{"app": app},
			Ports: []corev1.ServicePort{{Port: netlab.EchoPort, Protocol: corev1.ProtocolTCP}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return uint16(service.Spec.Ports[0].NodePort)
}

// answeredBy asks an address until each of these has answered. It returns the sources they saw.
func answeredBy(t *testing.T, from party, to netip.AddrPort, names ...string) []netip.Addr {
	t.Helper()
	answered, sources := map[string]bool{}, map[netip.Addr]bool{}
	await(t, fmt.Sprintf("%s is answered at %s by each of %v", from.name, to, names), func() string {
		answer, err := netlab.Ask(t.Context(), from.space, "tcp", to)
		if err != nil {
			return err.Error()
		}
		if !slices.Contains(names, answer.Name) {
			t.Fatalf("%s asked %s: %s answered", from.name, to, answer.Name)
		}
		answered[answer.Name], sources[answer.Source.Addr()] = true, true
		if len(answered) < len(names) {
			return fmt.Sprintf("only %v have answered", slices.Sorted(maps.Keys(answered)))
		}
		return ""
	})
	return slices.Collect(maps.Keys(sources))
}

func podNames(pods []*netlab.Pod) (names []string) {
	for _, p := range pods {
		names = append(names, p.Name)
	}
	return names
}

// nodePorts expects that every machine's node port leads to all servers, for the outside and for
// pods, and with policy Local to those of the machine, which see the client's address.
func nodePorts(
	t *testing.T, f *netlab.Lab, machines []*netlab.Machine, clients, servers []*netlab.Pod,
) {
	port := nodePort(t, f, "node-port", "server", corev1.ServiceExternalTrafficPolicyCluster)
	local := nodePort(t, f, "node-port-local", "server", corev1.ServiceExternalTrafficPolicyLocal)
	for _, m := range machines {
		answeredBy(t, outside(f), netip.AddrPortFrom(m.Public.IPv4, port), podNames(servers)...)
		for _, c := range clients {
			answeredBy(t, of(c), netip.AddrPortFrom(m.InternalIPs()[0], port), podNames(servers)...)
		}
		own := slices.DeleteFunc(slices.Clone(servers), func(p *netlab.Pod) bool {
			return p.Machine != m
		})
		if len(own) == 0 {
			refused(t, outside(f), netip.AddrPortFrom(m.Public.IPv4, local), "tcp")
			continue
		}
		saw := answeredBy(t, outside(f), netip.AddrPortFrom(m.Public.IPv4, local), podNames(own)...)
		if !slices.Equal(saw, []netip.Addr{netlab.OutsideIPv4}) {
			t.Errorf("by policy Local, pods of %s saw %v", m.Name, saw)
		}
	}
}

// hostNetwork expects that pods reach a Service with machines' own addresses as endpoints.
func hostNetwork(t *testing.T, f *netlab.Lab, machines []*netlab.Machine, clients []*netlab.Pod) {
	services := f.Client.CoreV1().Services("default")
	service, err := services.Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "host-network"},
		Spec: corev1.ServiceSpec{
			Ports: []corev1.ServicePort{{Port: hostPort, Protocol: corev1.ProtocolTCP}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "host-network", Labels: map[string]string{discoveryv1.LabelServiceName: service.Name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{
			{Port: ptr.To[int32](hostPort), Protocol: ptr.To(corev1.ProtocolTCP)},
		},
	}
	var names []string
	for _, m := range machines {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{m.InternalIPs()[0].String()},
		})
		names = append(names, m.Name)
	}
	if _, err := f.Client.DiscoveryV1().EndpointSlices("default").Create(t.Context(), slice, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range clients {
		answeredBy(t, of(c), netip.AddrPortFrom(netip.MustParseAddr(service.Spec.ClusterIP), hostPort),
			names...)
	}
}

// balanced expects that load balancers reach the servers through node ports of every machine: those
// outside the network by their public addresses alone.
func balanced(t *testing.T, f *netlab.Lab, servers []*netlab.Pod) {
	for _, p := range servers {
		serveWeb(t, p, false)
	}
	private := publish(t, f, "by-private", "server", corev1.ServiceExternalTrafficPolicyCluster, nil)
	private.awaitHealth(t, "one healthy, three healthy, two healthy")
	visitors(t, private, servers)
	public := publish(t, f, "by-public", "server", corev1.ServiceExternalTrafficPolicyLocal, map[string]string{"load-balancer.hetzner.cloud/use-private-ip": "false"})
	public.awaitHealth(t, "four healthy, one unhealthy, three healthy, two healthy")
	if saw := visitors(t, public, servers); !slices.Equal(saw, []netip.Addr{public.ipv4}) {
		t.Errorf("by policy Local, the pods saw %v, want the load balancer's %s", saw, public.ipv4)
	}
}

// visitors asks a load balancer until all servers have answered, and returns what they saw.
func visitors(t *testing.T, s *published, servers []*netlab.Pod) []netip.Addr {
	t.Helper()
	pods, peers := map[string]bool{}, map[netip.Addr]bool{}
	await(t, s.name+" leads to all servers", func() string {
		got, err := ask(t.Context(), s.f.Outside(), s.ipv4, frontage)
		if err != nil {
			t.Fatal(err)
		}
		pods[got.pod], peers[got.peer] = true, true
		if len(pods) < len(servers) {
			return fmt.Sprintf("only to %v", slices.Sorted(maps.Keys(pods)))
		}
		return ""
	})
	return slices.Collect(maps.Keys(peers))
}
