//go:build linux

package packets

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

// floatingPool is what manager and agents know of the floating IPs.
const floatingPool = `addresses:
  pools:
    - {name: floating, mover: floating-ip, ranges: [203.0.113.7, "2001:db8:f::1"]}
`

const (
	gamePort = 27015
	gameTick = 10 * time.Millisecond
	// killedGap bounds what the failure of a node costs: the neighbors notice within a second or
	// two, the rest is the manager, the cloud's action and a busy machine under the test.
	killedGap = 10 * time.Second
)

// Floating IPs bring UDP to a Service under the client's own address, and follow a node that serves
// it: out of a drain without a lost packet, out of a failure within seconds.
func TestFloatingIPs(t *testing.T) {
	f := start(t, netlab.Options{
		Machines: []string{"one", "two", "three"}, Settings: floatingPool,
		Cloud: hcloudsim.Options{ActionTime: 300 * time.Millisecond},
	})
	g := &game{f: f, addresses: []netip.Addr{netip.MustParseAddr("203.0.113.7"), netip.MustParseAddr("2001:db8:f::1")}}
	for _, seed := range []hcloudsim.FloatingIPSeed{
		{Name: "games-4", IP: netip.MustParsePrefix("203.0.113.7/32")},
		{Name: "games-6", Type: "ipv6", IP: netip.MustParsePrefix("2001:db8:f::/64")},
	} {
		if _, err := f.Cloud.CreateFloatingIP(seed); err != nil {
			t.Fatal(err)
		}
	}
	runPods(t, f, map[string]string{"app": "game"}, [2]string{"at-one", "one"}, [2]string{"at-two", "two"}, [2]string{"at-three", "three"})
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"a Service gets both, and clients are seen", g.published},
		{"a drained node loses no packet", g.drained},
		{"a killed node costs seconds", g.killed},
	} {
		if !t.Run(step.name, step.run) {
			break
		}
	}
}

type game struct {
	f         *netlab.Lab
	addresses []netip.Addr
}

// holders are the machines that the floating IPs lead to, in their order; empty: none.
func (g *game) holders() (names []string) {
	for _, p := range g.f.Cloud.DataPlane().FloatingIPs {
		name := ""
		for _, m := range []string{"one", "two", "three"} {
			if g.f.Machine(m).Server == p.Server {
				name = m
			}
		}
		names = append(names, name)
	}
	return names
}

func (g *game) published(t *testing.T) {
	local := corev1.ServiceExternalTrafficPolicyLocal
	_, err := g.f.Client.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "game"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: ptr.To("underlay.dev/address"),
			IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyRequireDualStack), ExternalTrafficPolicy: local,
			Selector: map[string]string{"app": "game"},
			Ports:    []corev1.ServicePort{{Port: gamePort, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromInt32(netlab.EchoPort)}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the Service has both addresses", func() string {
		now, err := g.f.Client.CoreV1().Services("default").Get(t.Context(), "game", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		var have []netip.Addr
		for _, i := range now.Status.LoadBalancer.Ingress {
			have = append(have, netip.MustParseAddr(i.IP))
		}
		if !slices.Equal(have, g.addresses) {
			return fmt.Sprintf("it has %v", have)
		}
		return ""
	})
	for i, source := range []netip.Addr{netlab.OutsideIPv4, netlab.OutsideIPv6} {
		var got netlab.Answer
		await(t, fmt.Sprintf("%s answers", g.addresses[i]), func() string {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			var err error
			if got, err = netlab.Ask(ctx, g.f.Outside(), "udp", netip.AddrPortFrom(g.addresses[i], gamePort)); err != nil {
				return fmt.Sprintf("%v; floating IPs lead to %q", err, g.holders())
			}
			return ""
		})
		if got.Source.Addr() != source || got.Name != "at-"+g.holders()[i] {
			t.Errorf("%s is answered by %s, which saw %s; want the pod of %s and %s", g.addresses[i], got.Name, got.Source, g.holders()[i], source)
		}
	}
}

// during sends to both addresses while something happens, and until they have moved from a machine.
func (g *game) during(t *testing.T, from string, do func(), lost int) {
	t.Helper()
	var streams []*netlab.Stream
	for _, a := range g.addresses {
		s, err := netlab.StartStream(t.Context(), g.f.Outside(), netip.AddrPortFrom(a, gamePort), gameTick)
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, s)
	}
	answers := func(more int) {
		for _, s := range streams {
			want := s.Answered() + more
			await(t, "the addresses answer", func() string {
				if n := s.Answered(); n < want {
					return fmt.Sprintf("%d of %d answers; floating IPs lead to %q", n, want, g.holders())
				}
				return ""
			})
		}
	}
	answers(50)
	g.f.Cloud.ResetRequests()
	began := time.Now()
	do()
	await(t, "the addresses have moved", func() string {
		if slices.Contains(g.holders(), from) {
			return fmt.Sprintf("they lead to %q", g.holders())
		}
		return ""
	})
	moved := time.Since(began)
	answers(100)
	for i, s := range streams {
		traffic := s.Stop()
		t.Logf("%s: moved within %s, %d of %d packets lost: %s", g.addresses[i], moved.Round(time.Millisecond), traffic.Lost, traffic.Sent, time.Duration(traffic.Lost)*gameTick)
		if traffic.Lost > lost {
			t.Errorf("%s lost %d packets of %d, at most %d may be", g.addresses[i], traffic.Lost, traffic.Sent, lost)
		}
	}
	for _, r := range g.f.Cloud.Requests() {
		t.Logf("%s %s %d", r.Method, r.Path, r.Status)
	}
}

func (g *game) drained(t *testing.T) {
	from := g.holders()[0]
	cordon := func(yes bool) {
		patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, yes)
		if _, err := g.f.Client.CoreV1().Nodes().Patch(t.Context(), from, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	g.during(t, from, func() { cordon(true) }, 0)
	cordon(false)
}

func (g *game) killed(t *testing.T) {
	from := g.holders()[0]
	g.during(t, from, func() {
		if err := g.f.Machine(from).Unplug(t.Context()); err != nil {
			t.Fatal(err)
		}
		g.f.Machine(from).Silence()
	}, int(killedGap/gameTick))
}
