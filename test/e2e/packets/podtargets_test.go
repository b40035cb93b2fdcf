//go:build linux

package packets

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/underlay-ccm/underlay/internal/podingress"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

// A load balancer connects to pods at their own addresses of IPv6, and nobody else
// outside does. Pods are replaced one after the other, an agent is killed meanwhile,
// and no connection is refused.
func TestPodsAsTargets(t *testing.T) {
	f := start(t, netlab.Options{Machines: []string{"one", "two"}})
	labels := map[string]string{"app": "direct"}
	pods := runPods(t, f, labels, [2]string{"direct-1", "one"}, [2]string{"direct-2", "one"}, [2]string{"direct-3", "two"})
	for _, p := range pods {
		serveWeb(t, p, true)
	}
	s := balanceByHand(t, f)
	s.drive(t, pods...)
	s.awaitTargets(t, pods...)
	t.Run("pods learn who asks", func(t *testing.T) { s.expectClients(t, pods) })
	t.Run("nothing else is open", func(t *testing.T) { nothingElseOpen(t, f, s, pods) })
	t.Run("pods are replaced and the agent killed", func(t *testing.T) { podsReplaced(t, f, s, pods) })
}

func (s *podBalancer) expectClients(t *testing.T, pods []*netlab.Pod) {
	seen := map[string]int{}
	for range 2 * len(pods) {
		for to, who := range map[netip.Addr]netip.Addr{s.ipv4: netlab.OutsideIPv4, s.ipv6: netlab.OutsideIPv6} {
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

// nothingElseOpen asks what is closed: whom, from where and at which port differs in
// one thing each from what is open.
func nothingElseOpen(t *testing.T, f *netlab.Lab, s *podBalancer, pods []*netlab.Pod) {
	other := runPods(t, f, map[string]string{"app": "other"}, [2]string{"other", "one"})[0]
	serveWeb(t, other, false)
	balancer := party{"the load balancer", f.BalancerNamespace(s.balancer)}
	one := f.Machine("one")
	answerEverywhere(t, f, one)
	// There is a way, and somebody answers: only the filter is between them.
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

// podsReplaced does what a Deployment and kubelets do when it is rolled out.
func podsReplaced(t *testing.T, f *netlab.Lab, s *podBalancer, pods []*netlab.Pod) {
	two := f.Machine("two")
	flow := startFlow(f, s.ipv4, s.ipv6)
	defer flow.stop()
	flow.expectMore(t, 20)
	var names []string
	for i, old := range slices.Clone(pods) {
		where := "one"
		if i > 0 {
			where = "two"
		}
		// A crash, while pods come: what is open stays, and what is to be is opened later.
		if i == 1 {
			two.KillAgent()
		}
		next := runPods(t, f, map[string]string{"app": "direct"}, [2]string{fmt.Sprintf("direct-%d", 4+i), where})[0]
		serveWeb(t, next, true)
		names = append(names, next.Name)
		pods = append(pods, next)
		s.drive(t, pods...)
		if i == 1 {
			flow.expectMore(t, 20)
			if err := two.StartAgent(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		s.awaitTargets(t, pods...)
		// What a kubelet is told first: the pod serves on, but shall get nothing new.
		err := f.Client.CoreV1().Pods("default").Delete(t.Context(), old.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](120)})
		if err != nil {
			t.Fatal(err)
		}
		pods = slices.DeleteFunc(pods, func(p *netlab.Pod) bool { return p == old })
		s.drive(t, pods...)
		s.awaitTargets(t, pods...)
		flow.expectMore(t, 10) // those to the old one have ended by then
		if err := old.Delete(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	flow.expectMore(t, 20)
	flow.stop()
	flow.expectNoFailure(t, names...)
}

// podBalancer is a load balancer with pods as targets.
type podBalancer struct {
	*published
	driven []*netlab.Pod
}

// call asks the simulated cloud, since hcloud-go lacks addresses of servers as targets.
func (s *podBalancer) call(t *testing.T, path string, body, answer any) {
	t.Helper()
	sent, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.f.CloudURL+path, bytes.NewReader(sent))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+cluster.Token)
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	if got.StatusCode >= 300 {
		t.Fatalf("%s answers %s", path, got.Status)
	}
	if answer != nil {
		if err := json.NewDecoder(got.Body).Decode(answer); err != nil {
			t.Fatal(err)
		}
	}
}

func balanceByHand(t *testing.T, f *netlab.Lab) *podBalancer {
	t.Helper()
	s := &podBalancer{published: &published{name: "direct", f: f}}
	var made struct {
		LoadBalancer struct {
			ID int64 `json:"id"`
		} `json:"load_balancer"`
	}
	s.call(t, "/load_balancers", map[string]any{
		"name": "direct", "load_balancer_type": "lb11", "network_zone": "eu-central",
		"services": []map[string]any{{
			"protocol": "tcp", "listen_port": frontage, "destination_port": webPort, "proxyprotocol": true,
			"health_check": map[string]any{"protocol": "tcp", "port": webPort, "interval": 3, "timeout": 15, "retries": retries},
		}},
	}, &made)
	s.balancer = made.LoadBalancer.ID
	for _, lb := range f.Cloud.DataPlane().LoadBalancers {
		if lb.ID == s.balancer {
			s.ipv4, s.ipv6 = lb.IPv4, lb.IPv6
		}
	}
	return s
}

// drive makes pods the targets: opened before they are, and closed after.
func (s *podBalancer) drive(t *testing.T, pods ...*netlab.Pod) {
	t.Helper()
	s.open(t, append(slices.Clone(pods), s.driven...))
	for _, p := range pods {
		if !slices.Contains(s.driven, p) {
			s.change(t, "add_target", p)
		}
	}
	for _, p := range s.driven {
		if !slices.Contains(pods, p) {
			s.change(t, "remove_target", p)
		}
	}
	s.open(t, pods)
	s.driven = slices.Clone(pods)
}

func (s *podBalancer) open(t *testing.T, pods []*netlab.Pod) {
	t.Helper()
	for _, node := range []string{"one", "two"} {
		open := podingress.Ingress{Sources: []netip.Prefix{netip.PrefixFrom(s.ipv6, 128)}}
		for _, p := range pods {
			if p.Machine.Name == node {
				open.Endpoints = append(open.Endpoints, netip.AddrPortFrom(p.IPv6, webPort))
			}
		}
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, podingress.Annotation("by-hand"), open)
		if _, err := s.f.Client.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// change waits for the action, because load balancers take one at a time.
func (s *podBalancer) change(t *testing.T, action string, p *netlab.Pod) {
	t.Helper()
	s.call(t, fmt.Sprintf("/load_balancers/%d/actions/%s", s.balancer, action),
		map[string]any{"type": "server", "server": map[string]any{"id": p.Machine.Server, "ip": p.IPv6.String()}}, nil)
	await(t, action+" "+p.Name, func() string {
		for _, a := range s.f.Cloud.Actions() {
			if a.Status == "running" {
				return a.Command
			}
		}
		return ""
	})
}

// awaitTargets waits until exactly these pods are targets, and healthy.
func (s *podBalancer) awaitTargets(t *testing.T, pods ...*netlab.Pod) {
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
