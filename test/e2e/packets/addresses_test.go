//go:build linux

package packets

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

// The pool of these tests.
const (
	poolIPv4 = "192.0.2.100-192.0.2.109"
	poolIPv6 = "2001:db8:1::100-2001:db8:1::109"
)

// On bare metal Services get addresses of the segment. One machine holds each, and another one
// takes it over when the holder is drained, loses its power or is disconnected.
func TestAddressesOnBareMetal(t *testing.T) {
	f := start(t, netlab.Options{
		Metal: true, Machines: []string{"one", "two", "three"},
		Settings: "addresses:\n  pools:\n  - {name: segment, ranges: [" + poolIPv4 + ", \"" + poolIPv6 + "\"]}\n",
	})
	h := &holders{f: f, web: map[string]*netlab.Pod{}}
	for _, name := range []string{"one", "two", "three"} {
		h.machines = append(h.machines, f.Machine(name))
		h.web[name] = runPods(t, f, map[string]string{"app": "web"}, [2]string{"web-" + name, name})[0]
	}
	h.plugIn(t)
	h.cluster = h.serve(t, service("cluster", corev1.ServiceExternalTrafficPolicyCluster))
	h.local = h.serve(t, service("local", corev1.ServiceExternalTrafficPolicyLocal))
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"the addresses are answered on the segment and from outside", h.answered},
		{"policy Local shows the client, and keeps source ranges", h.sourceRanges},
		{"a port that nobody serves is refused, and nothing loops", h.unserved},
		{"an address that a stranger has is not taken", h.stranger},
		{"draining loses nothing", h.drained},
		{"an agent's death and its upgrade lose nothing", h.agentRestarts},
		{"a silent API server loses nothing", h.silentAPIServer},
		{"a holder without API server hands over and loses nothing", h.withoutAPIServer},
		{"a kube-proxy that ends loses nothing", h.proxyEnds},
		{"an address whose traffic is local follows the pods", h.podGone},
		{"a holder that was parted gives up within a second of its return", h.parted},
		{"two halves of a segment that meet again have one holder within a second", h.halves},
		{"a machine that loses its power is followed by another one", h.powerOff},
	} {
		// Each step requires that the previous one succeeded.
		if !t.Run(step.name, step.run) {
			break
		}
	}
}

// holders is the lab of these tests.
type holders struct {
	f        *netlab.Lab
	machines []*netlab.Machine
	web      map[string]*netlab.Pod // by machine
	// client keeps its neighbor cache, asker's is cleared.
	client, asker *netlab.Neighbor
	frames        *netlab.Frames
	// Each Service's addresses, IPv4 first.
	cluster, local []netip.Addr
}

func (h *holders) plugIn(t *testing.T) {
	t.Helper()
	var err error
	if h.client, err = h.f.AddNeighbor(t.Context(), "client"); err != nil {
		t.Fatal(err)
	}
	if h.asker, err = h.f.AddNeighbor(t.Context(), "asker"); err != nil {
		t.Fatal(err)
	}
	if h.frames, err = h.f.WatchSegment(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.frames.Close)
}

// service selects the pods of this test, at the echo's port.
func service(name string, policy corev1.ServiceExternalTrafficPolicy) *corev1.Service {
	families := corev1.IPFamilyPolicyRequireDualStack
	port := func(protocol corev1.Protocol) corev1.ServicePort {
		return corev1.ServicePort{
			Name: strings.ToLower(string(protocol)), Protocol: protocol, Port: netlab.EchoPort,
			TargetPort: intstr.FromInt(netlab.EchoPort),
		}
	}
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Selector: map[string]string{"app": "web"}, IPFamilyPolicy: &families,
			ExternalTrafficPolicy: policy,
			Ports:                 []corev1.ServicePort{port(corev1.ProtocolTCP), port(corev1.ProtocolUDP)},
		},
	}
}

// serve creates a Service and waits for its addresses.
func (h *holders) serve(t *testing.T, s *corev1.Service) []netip.Addr {
	t.Helper()
	services := h.f.Client.CoreV1().Services(metav1.NamespaceDefault)
	if _, err := services.Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var found []netip.Addr
	await(t, s.Name+" has an address of each family", func() string {
		now, err := services.Get(t.Context(), s.Name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		found = nil
		for _, i := range now.Status.LoadBalancer.Ingress {
			found = append(found, netip.MustParseAddr(i.IP))
		}
		slices.SortFunc(found, netip.Addr.Compare)
		if len(found) != 2 || !found[0].Is4() || !found[1].Is6() {
			return fmt.Sprintf("it has %v", found)
		}
		return ""
	})
	return found
}

func (h *holders) all() []netip.Addr { return slices.Concat(h.cluster, h.local) }

// holder returns the machine that the ledger assigns an address to; nil if there is none.
func (h *holders) holder(t *testing.T, addr netip.Addr) *netlab.Machine {
	t.Helper()
	stored, err := h.f.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(t.Context(), "underlay-addresses", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := addresses.ParseLedger([]byte(stored.Data["ledger"]))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range l.Entries() {
		if e.Address == addr {
			return h.f.Machine(e.Holder)
		}
	}
	return nil
}

// report returns the addresses' report of a machine's agent.
func (h *holders) report(t *testing.T, m *netlab.Machine) addresses.Report {
	t.Helper()
	n, err := h.f.Client.CoreV1().Nodes().Get(t.Context(), m.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := addresses.ParseReport(n.Annotations[addresses.ReportAnnotation])
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// says returns the machines whose agents report that they hold an address.
func (h *holders) says(t *testing.T, addr netip.Addr) []string {
	t.Helper()
	var names []string
	for _, m := range h.machines {
		if slices.ContainsFunc(h.report(t, m).Held, func(held addresses.Hold) bool {
			return held.Address == addr
		}) {
			names = append(names, m.Name)
		}
	}
	return names
}

// held waits until every address has one holder according to the ledger, to the reports, and to a
// host that resolves it on the segment.
func (h *holders) held(t *testing.T) {
	t.Helper()
	for _, addr := range h.all() {
		await(t, addr.String()+" has one holder", func() string {
			holder, says := h.holder(t, addr), h.says(t, addr)
			if holder == nil || !slices.Equal(says, []string{holder.Name}) {
				return fmt.Sprintf("the ledger says %v, and these hold it: %q", holder, says)
			}
			return h.knownTo(t, h.asker, addr, holder)
		})
	}
}

// knownTo makes a host resolve an address, and expects a machine as its owner.
func (h *holders) knownTo(
	t *testing.T, n *netlab.Neighbor, addr netip.Addr, m *netlab.Machine,
) string {
	t.Helper()
	hardware, err := m.Hardware()
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Inquire(t.Context(), addr); err != nil {
		t.Fatal(err)
	}
	known := ""
	poll(t.Context(), aMoment, func() bool { known, err = n.Knows(t.Context(), addr); return err != nil || known != "" })
	if err != nil {
		t.Fatal(err)
	}
	if known != hardware {
		return fmt.Sprintf("%s knows %q behind it, and %s is at %s", n.Name, known, m.Name, hardware)
	}
	return ""
}

// streams starts a stream from the client to every address, and waits until all get replies.
func (h *holders) streams(t *testing.T) []*netlab.Stream {
	t.Helper()
	var streams []*netlab.Stream
	for _, addr := range h.all() {
		s, err := netlab.StartStream(t.Context(), h.client.Namespace, echo(addr), pace)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Stop() })
		streams = append(streams, s)
	}
	flows(t, streams, aWhile)
	return streams
}

// lostNothing ends streams and expects one reply to each packet. With the policy Cluster the
// observed source changes with the holder.
func lostNothing(t *testing.T, streams []*netlab.Stream) {
	t.Helper()
	for i, s := range streams {
		if got := s.Stop(); got.Lost > 0 || got.Repeated > 0 {
			t.Errorf("stream %d: of %d packets %d lost, %d repeated, none for %s from %s on", i, got.Sent, got.Lost, got.Repeated, got.Gap, got.GapAt.UTC().Format("15:04:05.000"))
		}
	}
}

// cordon makes a node unschedulable, or schedulable again.
func (h *holders) cordon(t *testing.T, m *netlab.Machine, out bool) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"unschedulable": out}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.f.Client.CoreV1().Nodes().Patch(t.Context(), m.Name, types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}
