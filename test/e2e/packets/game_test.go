//go:build linux

package packets

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

const (
	gamePort = 27015
	gameTick = 10 * time.Millisecond
	// underWay is how many packets a planned move may cost: those that the old node has when the
	// cloud changes the route, and whose replies it no longer accepts from that node.
	underWay = 10
	// killedGap limits the interruption by a failed node: the neighbors detect it within a second
	// or two, the rest is the manager, the cloud's action and a busy machine under the test.
	killedGap = 10 * time.Second
	refusing  = "a provider that refuses moves takes nothing from who is drained"
)

// game is a Service of both families at machines one, two and three, each of which has a pod.
type game struct {
	f         *netlab.Lab
	addresses []netip.Addr
	leads     func() []int64 // numbers of the servers that the addresses are routed to; 0: none
	moving    time.Duration  // duration of a move at the provider, also after a failure
	nowhere   time.Duration  // how long the addresses have no route in a planned move
	// refuse makes the provider reject every move until allow is called; nil: that is not tested.
	refuse func() (allow func(), err error)
}

func newGame(f *netlab.Lab, texts ...string) *game {
	g := &game{f: f}
	for _, a := range texts {
		g.addresses = append(g.addresses, netip.MustParseAddr(a))
	}
	return g
}

// holders are the machines that the addresses are routed to, in their order; empty: none.
func (g *game) holders() (names []string) {
	for _, server := range g.leads() {
		name := ""
		for _, n := range []string{"one", "two", "three"} {
			if m := g.f.Machine(n); server != 0 && (m.Server == server || m.RobotNumber == server) {
				name = n
			}
		}
		names = append(names, name)
	}
	return names
}

func (g *game) play(t *testing.T) {
	runPods(t, g.f, map[string]string{"app": "game"}, [2]string{"at-one", "one"}, [2]string{"at-two", "two"}, [2]string{"at-three", "three"})
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"a Service gets both, and clients are seen", g.published},
		{refusing, g.refused},
		{"a drained node loses what is under way at most", g.drained},
		{"a killed node costs seconds", g.killed},
	} {
		if step.name == refusing && g.refuse == nil {
			continue
		}
		if !t.Run(step.name, step.run) {
			break
		}
	}
}

func (g *game) published(t *testing.T) {
	local := corev1.ServiceExternalTrafficPolicyLocal
	_, err := g.f.Client.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "game"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: ptr.To("underlay.dev/address"),
			IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyRequireDualStack), ExternalTrafficPolicy: local,
			Selector: map[string]string{"app": "game"},
			Ports: []corev1.ServicePort{
				{Port: gamePort, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromInt32(netlab.EchoPort)},
			},
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
	g.settled(t)
	for i, source := range []netip.Addr{netlab.OutsideIPv4, netlab.OutsideIPv6} {
		var got netlab.Answer
		await(t, fmt.Sprintf("%s answers", g.addresses[i]), func() string {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			var err error
			if got, err = netlab.Ask(ctx, g.f.Outside(), "udp", netip.AddrPortFrom(g.addresses[i], gamePort)); err != nil {
				return fmt.Sprintf("%v; they lead to %q", err, g.holders())
			}
			return ""
		})
		if got.Source.Addr() != source || got.Name != "at-"+g.holders()[i] {
			t.Errorf("%s is answered by %s, which saw %s; want the pod of %s and %s", g.addresses[i], got.Name, got.Source, g.holders()[i], source)
		}
	}
}

// refused drains the nodes that have the addresses while the provider moves none. They keep
// serving, also when the router resolves their hardware addresses again; and a port that no Service
// has is rejected there, as on a holder, instead of looping until the hop limit.
func (g *game) refused(t *testing.T) {
	allow, err := g.refuse()
	if err != nil {
		t.Fatal(err)
	}
	defer allow()
	before := g.holders()
	g.cordon(t, true, before...)
	await(t, "the ledger has other nodes hold them", func() string {
		for i, holder := range g.ledger(t) {
			if slices.Contains(before, holder) {
				return fmt.Sprintf("%s is held by %s", g.addresses[i], holder)
			}
		}
		return ""
	})
	time.Sleep(time.Second) // in which their agents would stop
	if err := g.f.ForgetServers(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, a := range g.addresses {
		await(t, a.String()+" answers where it leads", func() string {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := netlab.Ask(ctx, g.f.Outside(), "udp", netip.AddrPortFrom(a, gamePort)); err != nil {
				return fmt.Sprintf("%v; they lead to %q", err, g.holders())
			}
			return ""
		})
		await(t, a.String()+" refuses what no Service has", func() string {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := netlab.Ask(ctx, g.f.Outside(), "tcp", netip.AddrPortFrom(a, gamePort+1)); !errors.Is(err, syscall.ECONNREFUSED) {
				return fmt.Sprint(err)
			}
			return ""
		})
	}
	if now := g.holders(); !slices.Equal(now, before) {
		t.Errorf("they lead to %q, to %q before: the provider has moved them", now, before)
	}
	allow()
	g.cordon(t, false, before...)
	g.settled(t)
}

// settled waits until the addresses are routed to the nodes in the ledger: there is a pod also
// where they were routed before a Service had them.
func (g *game) settled(t *testing.T) {
	t.Helper()
	await(t, "the addresses lead to who holds them", func() string {
		if now, want := g.holders(), g.ledger(t); !slices.Equal(now, want) {
			return fmt.Sprintf("they lead to %q, want %q", now, want)
		}
		return ""
	})
}

// ledger returns the nodes that should hold the addresses, in their order.
func (g *game) ledger(t *testing.T) (holders []string) {
	t.Helper()
	stored, err := g.f.Client.CoreV1().ConfigMaps("kube-system").Get(t.Context(), "underlay-addresses", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ledger, err := addresses.ParseLedger([]byte(stored.Data["ledger"]))
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range g.addresses {
		e, _ := ledger.Entry(a)
		holders = append(holders, e.Holder)
	}
	return holders
}

func (g *game) cordon(t *testing.T, yes bool, names ...string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, yes)
	for _, name := range names {
		if _, err := g.f.Client.CoreV1().Nodes().Patch(t.Context(), name, types.MergePatchType, patch,
			metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// during sends to both addresses while do runs, and until both have moved.
func (g *game) during(t *testing.T, do func(), lost int) {
	t.Helper()
	g.settled(t)
	before := g.holders()
	var streams []*netlab.Stream
	for _, a := range g.addresses {
		s, err := netlab.StartStream(t.Context(), g.f.Outside(), netip.AddrPortFrom(a, gamePort),
			gameTick)
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
					return fmt.Sprintf("%d of %d answers; they lead to %q", n, want, g.holders())
				}
				return ""
			})
		}
	}
	answers(50)
	began := time.Now()
	do()
	await(t, "the addresses have moved", func() string {
		for i, now := range g.holders() {
			if now == "" || now == before[i] {
				return fmt.Sprintf("they lead to %q, to %q before", g.holders(), before)
			}
		}
		return ""
	})
	g.settled(t)
	moved := time.Since(began)
	answers(100)
	for i, s := range streams {
		traffic := s.Stop()
		t.Logf("%s: moved within %s, %d of %d packets lost: %s", g.addresses[i], moved.Round(time.Millisecond), traffic.Lost, traffic.Sent, time.Duration(traffic.Lost)*gameTick)
		if traffic.Lost > lost {
			t.Errorf("%s lost %d packets of %d, at most %d may be", g.addresses[i], traffic.Lost, traffic.Sent, lost)
		}
	}
}

// drained cordons all machines except one without an address.
func (g *game) drained(t *testing.T) {
	all := []string{"one", "two", "three"}
	i := slices.IndexFunc(all, func(name string) bool { return !slices.Contains(g.holders(), name) })
	others := slices.Delete(all, i, i+1)
	g.during(t, func() { g.cordon(t, true, others...) }, underWay+int(g.nowhere/gameTick))
	g.cordon(t, false, others...)
}

// killed powers off the machine that has both addresses since the drain.
func (g *game) killed(t *testing.T) {
	from := g.f.Machine(g.holders()[0])
	g.during(t, func() {
		if err := from.Unplug(t.Context()); err != nil {
			t.Fatal(err)
		}
		from.Silence()
	}, int((killedGap+g.moving)/gameTick))
}
