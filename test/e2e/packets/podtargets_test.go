//go:build linux

package packets

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/lb"
	"github.com/underlay-ccm/underlay/routes/agent"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

// A load balancer connects to pods at their own IPv6 addresses, and no other external host can.
// Pods are replaced one after the other, an agent is killed in the middle, and no connection is
// refused.
func TestPodsAsTargets(t *testing.T) {
	f := start(t, netlab.Options{Machines: []string{"one", "two"}})
	labels := map[string]string{"app": "direct"}
	pods := runPods(t, f, labels, [2]string{"direct-1", "one"}, [2]string{"direct-2", "one"}, [2]string{"direct-3", "two"})
	for _, p := range pods {
		serveWeb(t, p, true)
	}
	s := publishPods(t, f, "direct")
	s.awaitTargets(t, pods...)
	t.Run("pods learn who asks", func(t *testing.T) { podsSeeTheClients(t, s, pods) })
	t.Run("nothing else is open", func(t *testing.T) { nothingElseOpen(t, f, s, pods) })
	t.Run("pods are replaced and an agent is killed", func(t *testing.T) { podsReplaced(t, f, s, pods) })
	t.Run("nothing is open when the Service is gone", func(t *testing.T) { closedWithService(t, f, s) })
}

// If the cloud connects from another address than the load balancer's own, it is configured.
func TestPodsAsTargetsFromElsewhere(t *testing.T) {
	elsewhere := netip.MustParseAddr("2001:db8:ee::1")
	f := start(t, netlab.Options{
		Machines: []string{"one"}, Cloud: hcloudsim.Options{IPv6Source: elsewhere},
		Balancing: "podTargetSources: [2001:db8:ee::/64]",
	})
	pod := runPods(t, f, map[string]string{"app": "direct"}, [2]string{"direct", "one"})[0]
	serveWeb(t, pod, true)
	s := publishPods(t, f, "direct")
	s.awaitTargets(t, pod)
	for to, who := range map[netip.Addr]netip.Addr{
		s.ipv4: netlab.OutsideIPv4, s.ipv6: netlab.OutsideIPv6,
	} {
		got, err := ask(t.Context(), f.Outside(), to, frontage)
		if want := (visit{"direct", elsewhere, who}); err != nil || got != want {
			t.Errorf("asking %s gives %v (%v), want %v", to, got, err, want)
		}
	}
}

// publishPods makes the pods of an app targets of a load balancer. No node ports are needed.
func publishPods(t *testing.T, f *netlab.Lab, app string) *published {
	t.Helper()
	return publishAs(t, f, app, map[string]string{
		lb.AnnotationTargets: "pods", "load-balancer.hetzner.cloud/uses-proxyprotocol": "true",
	}, corev1.ServiceSpec{
		Selector:                      map[string]string{"app": app},
		IPFamilyPolicy:                ptr.To(corev1.IPFamilyPolicyRequireDualStack),
		AllocateLoadBalancerNodePorts: ptr.To(false),
	})
}

// podsSeeTheClients expects packets from the load balancer, with the client in the PROXY header.
func podsSeeTheClients(t *testing.T, s *published, pods []*netlab.Pod) {
	seen := map[string]int{}
	for range 2 * len(pods) {
		for to, who := range map[netip.Addr]netip.Addr{
			s.ipv4: netlab.OutsideIPv4, s.ipv6: netlab.OutsideIPv6,
		} {
			got, err := ask(t.Context(), s.f.Outside(), to, frontage)
			if want := (visit{got.pod, s.ipv6, who}); err != nil || got != want {
				t.Errorf("asking %s gives %v (%v), want %v", to, got, err, want)
			}
			seen[got.pod]++
		}
	}
	for _, p := range pods {
		if seen[p.Name] == 0 {
			t.Errorf("%s was never asked: %v", p.Name, seen)
		}
	}
}

// nothingElseOpen tests closed paths: each differs from an open one in its destination, its source
// or its port.
func nothingElseOpen(t *testing.T, f *netlab.Lab, s *published, pods []*netlab.Pod) {
	other := runPods(t, f, map[string]string{"app": "other"}, [2]string{"other", "one"})[0]
	serveWeb(t, other, false)
	balancer := party{"the load balancer", f.BalancerNamespace(s.balancer)}
	one := f.Machine("one")
	answerEverywhere(t, f, one)
	// There are routes and an echo, so that only the filter is between them.
	reaches(t, outside(f), ownPort(one.Public.IPv6), "one", netlab.OutsideIPv6, "tcp")
	reaches(t, balancer, ownPort(one.Public.IPv6), "one", s.ipv6, "tcp")
	reaches(t, of(pods[2]), echo(other.IPv6), other.Name, pods[2].IPv6, "tcp")
	reaches(t, of(pods[2]), echo(pods[0].IPv6), pods[0].Name, pods[2].IPv6, "tcp")
	closed := map[netip.AddrPort][]party{
		netip.AddrPortFrom(pods[0].IPv6, webPort): {outside(f)},
		netip.AddrPortFrom(other.IPv6, webPort):   {outside(f), balancer},
		echo(pods[0].IPv6):                        {outside(f), balancer},
	}
	for to, parties := range closed {
		for _, from := range parties {
			t.Run(fmt.Sprintf("%s to %s", from.name, to), func(t *testing.T) {
				t.Parallel()
				refused(t, from, to, "tcp")
			})
		}
	}
}

// podsReplaced acts as a Deployment and kubelets during a rollout.
func podsReplaced(t *testing.T, f *netlab.Lab, s *published, pods []*netlab.Pod) {
	two := f.Machine("two")
	flow := startFlow(f, s.ipv4, s.ipv6)
	defer flow.stop()
	flow.expectMore(t, 20)
	var names []string
	for i, old := range slices.Clone(pods[:2]) {
		where := "one"
		if i > 0 {
			where = "two"
		}
		// A crash, while pods are added: open ports remain open, new ones are opened later.
		if i == 1 {
			two.KillAgent()
		}
		next := runPods(t, f, map[string]string{"app": "direct"}, [2]string{fmt.Sprintf("direct-%d", 4+i), where})[0]
		serveWeb(t, next, true)
		names = append(names, next.Name)
		pods = append(pods, next)
		if i == 1 {
			flow.expectMore(t, 20)
			if err := two.StartAgent(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		s.awaitTargets(t, pods...)
		// The first step of a deletion: the pod still serves, but should get no new connections.
		err := f.Client.CoreV1().Pods("default").Delete(t.Context(), old.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](120)})
		if err != nil {
			t.Fatal(err)
		}
		pods = slices.DeleteFunc(pods, func(p *netlab.Pod) bool { return p == old })
		s.awaitTargets(t, pods...)
		flow.expectMore(t, 10) // connections to the old one have ended by then
		if err := old.Delete(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	flow.expectMore(t, 20)
	flow.stop()
	flow.expectNoFailure(t, names...)
	open(t, f, pods...)
}

// open waits until exactly these pods' ports are open, on all machines.
func open(t *testing.T, f *netlab.Lab, pods ...*netlab.Pod) {
	t.Helper()
	var want []string
	for _, p := range pods {
		want = append(want, fmt.Sprintf("%s . %d", p.IPv6, webPort))
	}
	slices.Sort(want)
	await(t, fmt.Sprintf("open are %d pods", len(pods)), func() string {
		var is []string
		for _, name := range []string{"one", "two"} {
			for _, e := range opening.FindAllStringSubmatch(run(t, f.Machine(name), "nft", "list", "set", "inet", "underlay", "targets-6"), -1) {
				is = append(is, e[1])
			}
		}
		slices.Sort(is)
		if !slices.Equal(is, want) {
			return fmt.Sprintf("open are %q, want %q", is, want)
		}
		return ""
	})
}

// opening is an element of the packet filter's set: source, address and port.
var opening = regexp.MustCompile(`[0-9a-f:]+ \. ([0-9a-f:]+ \. \d+)`)

func closedWithService(t *testing.T, f *netlab.Lab, s *published) {
	if err := f.Client.CoreV1().Services("default").Delete(t.Context(), s.name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	open(t, f)
	nodes, err := f.Client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range nodes.Items {
		if left := agent.Targets(&node); len(left) > 0 {
			t.Errorf("Node %s keeps %v", node.Name, left)
		}
	}
}

// awaitTargets waits until exactly these pods are targets, and healthy.
func (s *published) awaitTargets(t *testing.T, pods ...*netlab.Pod) {
	t.Helper()
	var want []string
	for _, p := range pods {
		want = append(want, p.IPv6.String())
	}
	slices.Sort(want)
	began := time.Now()
	await(t, fmt.Sprintf("targets are %d pods", len(pods)), func() string {
		var healthy, targets []string
		for _, target := range s.f.Cloud.HealthyTargets(s.balancer, frontage) {
			healthy = append(healthy, target.Address.String())
		}
		for _, lb := range s.f.Cloud.DataPlane().LoadBalancers {
			if lb.ID == s.balancer {
				for _, target := range lb.Targets {
					targets = append(targets, target.Address.String())
				}
			}
		}
		slices.Sort(healthy)
		slices.Sort(targets)
		if !slices.Equal(healthy, want) || !slices.Equal(targets, want) {
			return fmt.Sprintf("healthy are %s of %s, want %s", strings.Join(healthy, " "), strings.Join(targets, " "), strings.Join(want, " "))
		}
		return ""
	})
	t.Logf("targets are %d pods after %s", len(pods), time.Since(began))
}
