package controller_test

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/podingress"
	"github.com/underlay-ccm/underlay/lb"
)

// podNode returns a Node with a pod prefix from its server's own /64.
func podNode(server int) *corev1.Node {
	n := node(fmt.Sprintf("node-%d", server), server)
	own := ownOf(server).Addr().As16()
	own[9] = 1
	n.Spec.PodCIDRs = []string{fmt.Sprintf("10.244.%d.0/24", server), netip.PrefixFrom(netip.AddrFrom16(own), 80).String()}
	n.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeExternalIP, Address: ownOf(server).Addr().Next().String()},
	}
	return n
}

// podAt returns the ith pod of a server as a target.
func podAt(server, i int) lb.Target {
	a := ownOf(server).Addr().As16()
	a[9], a[15] = 1, byte(i)
	return lb.Target{Server: int64(server), Address: netip.AddrFrom16(a)}
}

// pods are endpoints and their states. A state determines the conditions: ready, waiting (not
// ready), draining (serving and terminating) or ending (terminating).
type pods struct {
	w      *world
	port   int32
	states map[lb.Target]string
	ipv4   map[string]string // pods without an IPv6 address, by their nodes
}

func newPods(w *world) *pods {
	return &pods{w: w, port: 8080, states: map[lb.Target]string{}, ipv4: map[string]string{}}
}

func endpoint(address, nodeName, pod, state string) discoveryv1.Endpoint {
	is := func(states ...string) *bool { return new(slices.Contains(states, state)) }
	return discoveryv1.Endpoint{
		Addresses: []string{address}, NodeName: &nodeName, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: pod},
		Conditions: discoveryv1.EndpointConditions{Ready: is("ready"), Serving: is("ready", "draining"), Terminating: is("draining", "ending")},
	}
}

// publish writes the slices of the Service web, one for each family.
func (p *pods) publish() {
	p.w.t.Helper()
	slice := func(family discoveryv1.AddressType) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: "web-" + strings.ToLower(string(family)), Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
			AddressType: family,
		}
		name := "web"
		if len(p.states)+len(p.ipv4) > 0 {
			s.Ports = []discoveryv1.EndpointPort{{Name: &name, Port: &p.port}}
		}
		return s
	}
	v6, v4 := slice(discoveryv1.AddressTypeIPv6), slice(discoveryv1.AddressTypeIPv4)
	for i, t := range slices.SortedFunc(maps.Keys(p.states), lb.Target.Compare) {
		name := fmt.Sprint("pod-", t.Address)
		v6.Endpoints = append(v6.Endpoints, endpoint(t.Address.String(), fmt.Sprintf("node-%d", t.Server), name, p.states[t]))
		v4.Endpoints = append(v4.Endpoints, endpoint(fmt.Sprint("10.244.0.", i+1), fmt.Sprintf("node-%d", t.Server), name, p.states[t]))
	}
	for node, state := range p.ipv4 {
		v4.Endpoints = append(v4.Endpoints, endpoint("10.244.9.9", node, "pod-on-"+node, state))
	}
	api := p.w.api.DiscoveryV1().EndpointSlices("default")
	for _, s := range []*discoveryv1.EndpointSlice{v4, v6} {
		if _, err := api.Update(context.Background(), s, metav1.UpdateOptions{}); err != nil {
			if _, err := api.Create(context.Background(), s, metav1.CreateOptions{}); err != nil {
				p.w.t.Fatal(err)
			}
		}
	}
}

// are sets the Service's pods and waits.
func (p *pods) are(states map[lb.Target]string) {
	p.w.t.Helper()
	p.states = states
	p.publish()
	p.w.settle()
	p.w.settle() // later changes are batched for longer
}

func podService() *corev1.Service {
	svc := service("web")
	svc.Annotations[lb.AnnotationTargets] = "pods"
	svc.Spec.AllocateLoadBalancerNodePorts = new(bool)
	svc.Spec.Ports[0].NodePort, svc.Spec.Ports[0].TargetPort = 0, intstr.FromString("web")
	return svc
}

// inPodWorld runs a test with two nodes with prefixes of their own servers, and a third one
// without.
func inPodWorld(t *testing.T, options hcloudsim.Options, test func(w *world, p *pods)) {
	t.Helper()
	project := newCloud()
	project.options = options
	inWorldWith(t, project, []runtime.Object{podNode(1), podNode(2), node("node-3", 3)}, func(d *lb.Defaults) { d.OwnPools = true }, func(w *world) {
		w.settle()
		w.cloud.counts()
		test(w, newPods(w))
	})
}

// openings returns the ingress annotations, by nodes.
func (w *world) openings() string {
	w.t.Helper()
	all, err := w.api.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	var lines []string
	for _, n := range all.Items {
		for key, value := range n.Annotations {
			i, err := podingress.Parse(value)
			if uid, is := podingress.Service(key); is && err == nil {
				lines = append(lines, fmt.Sprintf("%s %s %v %v", n.Name, uid, i.Sources, i.Endpoints))
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func (w *world) targets() []lb.Target {
	all := w.cloud.all()
	if len(all) == 0 {
		return nil
	}
	return all[0].Targets
}

func TestPodsBecomeTargets(t *testing.T) {
	inPodWorld(t, hcloudsim.Options{}, func(w *world, p *pods) {
		w.create(podService())
		w.expect("a name that nobody can say the number of")
		if got := accepted(w.service("web")); got != "False TargetPortUnknown" {
			t.Errorf("before there are pods: %s", got)
		}
		p.are(map[lb.Target]string{podAt(1, 1): "ready", podAt(2, 1): "ready", podAt(2, 2): "waiting"})
		w.expect("pods", `create "awebuid" with 1 listeners and 0 targets`, "add pod 2001:db8:101:0:1::1 on server 1", "add pod 2001:db8:102:0:1::1 on server 2")
		balancer := w.cloud.all()[0]
		if l := balancer.Listeners[0]; l.DestinationPort != 8080 || l.Check.Protocol != "tcp" || l.Check.Port != 8080 {
			t.Errorf("listener %+v", l)
		}
		if got := accepted(w.service("web")); got != "True Accepted" {
			t.Error(got)
		}
		if want := fmt.Sprintf("node-1 web-uid [%s/128] [[2001:db8:101:0:1::1]:8080]\nnode-2 web-uid [%[1]s/128] [[2001:db8:102:0:1::1]:8080 [2001:db8:102:0:1::2]:8080]", balancer.IPv6); w.openings() != want {
			t.Errorf("opened:\n%s\nwant:\n%s", w.openings(), want)
		}

		p.are(map[lb.Target]string{podAt(1, 1): "draining", podAt(2, 1): "ready", podAt(2, 2): "ready"})
		w.expect("one for another", "add pod 2001:db8:102:0:1::2 on server 2", "remove pod 2001:db8:101:0:1::1 on server 1")
		if !strings.Contains(w.openings(), "node-1") {
			t.Error("a pod that drains is cut off")
		}
		p.are(map[lb.Target]string{podAt(1, 1): "ending", podAt(2, 1): "ready", podAt(2, 2): "ready"})
		p.are(map[lb.Target]string{podAt(2, 1): "ready", podAt(2, 2): "ready"})
		if reads, writes := w.cloud.counts(); reads != 0 || len(writes) != 0 || strings.Contains(w.openings(), "node-1") {
			t.Errorf("the end of a pod that is no target: %d reads, %v; opened:\n%s", reads, writes, w.openings())
		}
		p.are(map[lb.Target]string{podAt(2, 1): "draining", podAt(2, 2): "waiting"})
		w.expect("none is ready: those that drain serve, and one that waits may be ready soon")
		p.are(map[lb.Target]string{})
		w.expect("none", "remove pod 2001:db8:102:0:1::1 on server 2", "remove pod 2001:db8:102:0:1::2 on server 2")
		if w.openings() != "" || accepted(w.service("web")) != "True Accepted" {
			t.Errorf("opened:\n%s\n%s", w.openings(), accepted(w.service("web")))
		}
		p.are(map[lb.Target]string{podAt(1, 7): "ready"})
		w.expect("again", "add pod 2001:db8:101:0:1::7 on server 1")

		w.written()
		w.restart()
		w.later()
		if w.expect("a restart"); w.written() != 0 || !strings.Contains(w.openings(), "::7]:8080") {
			t.Errorf("opened:\n%s", w.openings())
		}
		w.delete("web")
		w.expect("the end", "delete")
		if w.openings() != "" {
			t.Errorf("left open:\n%s", w.openings())
		}
	})
}

// The test covers named target ports, and the cases in which nodes are the targets although pods
// are requested.
func TestWhyPodsAreNoTargets(t *testing.T) {
	for name, c := range map[string]struct {
		service func(*corev1.Service)
		pools   bool
		states  map[lb.Target]string
		ipv4    map[string]string
		want    string
		targets int // 3: the nodes
	}{
		"no IPv6":        {service: func(s *corev1.Service) { s.Spec.IPFamilies = s.Spec.IPFamilies[:1] }, pools: true, states: map[lb.Target]string{podAt(1, 1): "ready"}, want: "False PodsNotTargets", targets: 3},
		"no pool":        {states: map[lb.Target]string{podAt(1, 1): "ready"}, want: "False PodsNotTargets", targets: 3},
		"none has one":   {pools: true, ipv4: map[string]string{"node-3": "ready"}, want: "False PodsNotTargets", targets: 3},
		"some have one":  {pools: true, states: map[lb.Target]string{podAt(1, 1): "ready"}, ipv4: map[string]string{"node-3": "ready"}, want: "False PodsNotTargets", targets: 1},
		"IPv6 alone":     {service: func(s *corev1.Service) { s.Spec.IPFamilies = s.Spec.IPFamilies[1:] }, pools: true, states: map[lb.Target]string{podAt(1, 1): "ready", podAt(1, 2): "ready"}, want: "True Accepted", targets: 2},
		"private":        {service: func(s *corev1.Service) { s.Annotations[lb.HetznerPrefix+"use-private-ip"] = "true" }, pools: true, states: map[lb.Target]string{podAt(1, 1): "ready"}, want: "False InvalidField"},
		"of no node":     {pools: true, states: map[lb.Target]string{podAt(9, 1): "ready"}, want: "False PodsNotTargets", targets: 3},
		"of no own /64":  {pools: true, states: map[lb.Target]string{{Server: 3, Address: podAt(3, 1).Address}: "ready"}, want: "False PodsNotTargets", targets: 3},
		"of another's":   {pools: true, states: map[lb.Target]string{{Server: 1, Address: podAt(2, 1).Address}: "ready"}, want: "False PodsNotTargets", targets: 3},
		"with a number":  {service: func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromInt32(8080) }, pools: true, want: "True Accepted"},
		"without pods":   {pools: true, want: "False TargetPortUnknown"},
		"and node ports": {service: func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 0 }, states: map[lb.Target]string{podAt(1, 1): "ready"}, want: "False PodsNotTargets"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorldWith(t, newCloud(), []runtime.Object{podNode(1), podNode(2), node("node-3", 3)}, func(d *lb.Defaults) { d.OwnPools, d.UsePrivateIP = c.pools, true }, func(w *world) {
				p := newPods(w)
				p.ipv4 = c.ipv4
				p.are(c.states)
				svc := podService()
				svc.Spec.Ports[0].NodePort = 30080
				if c.service != nil {
					c.service(svc)
				}
				w.create(svc)
				if got := accepted(w.service("web")); got != c.want || len(w.targets()) != c.targets {
					t.Errorf("%s with targets %v; %v", got, w.targets(), w.service("web").Status.Conditions)
				}
				if c.targets == 3 && w.openings() != "" {
					t.Errorf("opened for nodes:\n%s", w.openings())
				}
				w.message()
				w.cloud.counts()
				w.later()
				if w.expect("later"); len(w.message()) > 0 {
					t.Error("it is told twice")
				}
			})
		})
	}
}

// The annotation, and the pods' addresses, switch between nodes and pods as targets.
func TestNodesAndPodsTakeEachOthersPlace(t *testing.T) {
	inPodWorld(t, hcloudsim.Options{}, func(w *world, p *pods) {
		p.are(map[lb.Target]string{podAt(1, 1): "ready", podAt(2, 1): "ready"})
		svc := podService()
		svc.Spec.Ports[0].NodePort = 30080
		delete(svc.Annotations, lb.AnnotationTargets)
		w.create(svc)
		w.cloud.counts()
		w.edit("web", func(s *corev1.Service) { s.Annotations[lb.AnnotationTargets] = "pods" })
		w.expect("pods", "add pod 2001:db8:101:0:1::1 on server 1", "add pod 2001:db8:102:0:1::1 on server 2",
			"update listener 80 → 8080, tcp :8080 every 10s, timeout 15s, 3 tries", "remove server 1", "remove server 2", "remove server 3")
		if !strings.Contains(w.openings(), "node-2") {
			t.Error("pods are not opened")
		}
		p.ipv4["node-3"] = "ready"
		p.are(map[lb.Target]string{podAt(1, 1): "ready"})
		w.expect("some have no address", "remove pod 2001:db8:102:0:1::1 on server 2")
		p.are(nil)
		w.expect("none has one", "add server 1", "add server 2", "add server 3",
			"update listener 80 → 30080, http :10256/healthz every 10s, timeout 15s, 3 tries", "remove pod 2001:db8:101:0:1::1 on server 1")
		if w.openings() != "" {
			t.Errorf("opened for nodes:\n%s", w.openings())
		}
		p.are(map[lb.Target]string{podAt(1, 1): "ready"})
		w.expect("not every one has one")
		p.ipv4 = nil
		p.are(map[lb.Target]string{podAt(1, 1): "ready"})
		if _, writes := w.cloud.counts(); len(writes) != 5 ||
			!slices.Equal(w.targets(), []lb.Target{podAt(1, 1)}) {
			t.Errorf("every one has one: %v", writes)
		}
		w.edit("web", func(s *corev1.Service) { s.Annotations[lb.AnnotationTargets] = "nodes" })
		if targets := w.targets(); len(targets) != 3 || targets[0].Pod() || w.openings() != "" {
			t.Errorf("nodes again: %v\n%s", targets, w.openings())
		}
		w.message()
		w.cloud.counts()
		w.later()
		w.expect("at rest")
	})
}

// The pods of a refused Service stay its targets.
func TestRefusedServiceKeepsItsPodsUpToDate(t *testing.T) {
	inPodWorld(t, hcloudsim.Options{}, func(w *world, p *pods) {
		p.are(map[lb.Target]string{podAt(1, 1): "ready", podAt(2, 1): "ready"})
		w.create(podService())
		w.edit("web", func(s *corev1.Service) { s.Annotations[lb.HetznerPrefix+"use-private-ip"] = "true" })
		w.cloud.counts()
		p.are(map[lb.Target]string{podAt(1, 1): "ready", podAt(2, 2): "ready"})
		w.expect("other pods", "add pod 2001:db8:102:0:1::2 on server 2", "remove pod 2001:db8:102:0:1::1 on server 2")
		if !strings.Contains(w.openings(), "::2]:8080") {
			t.Errorf("opened:\n%s", w.openings())
		}
		w.edit("web", func(s *corev1.Service) { s.Annotations[lb.AnnotationTargets] = "nodes" }) // and it has no node ports
		w.expect("nodes without ports")
	})
}

// Pods become targets when their Node gets a prefix of its own server.
func TestNodeMakesPodsTargets(t *testing.T) {
	inPodWorld(t, hcloudsim.Options{}, func(w *world, p *pods) {
		p.are(map[lb.Target]string{podAt(1, 1): "ready", podAt(3, 1): "ready"})
		w.create(podService())
		w.cloud.counts()
		w.editNode("node-3", func(n *corev1.Node) { n.Spec.PodCIDRs = podNode(3).Spec.PodCIDRs })
		w.expect("a prefix", "add pod 2001:db8:103:0:1::1 on server 3")
		w.editNode("node-3", func(n *corev1.Node) { n.Labels[corev1.LabelNodeExcludeBalancers] = "" })
		w.editNode("node-2", func(n *corev1.Node) { n.Status.Conditions = nil })
		if reads, writes := w.cloud.counts(); reads != 0 || len(writes) != 0 {
			t.Errorf("changes of nodes that say nothing of pods: %d reads, %v", reads, writes)
		}
	})
}

// If the cloud allows one address of each server, the first pod of each node is a target, and the
// next one replaces it.
func TestOnePodOfEachNode(t *testing.T) {
	inPodWorld(t, hcloudsim.Options{OneTargetPerServer: true}, func(w *world, p *pods) {
		p.are(map[lb.Target]string{podAt(1, 1): "ready", podAt(1, 2): "ready", podAt(2, 1): "ready"})
		w.create(podService())
		if got := w.targets(); len(got) != 2 || accepted(w.service("web")) != "False Rejected" {
			t.Errorf("targets %v, %s", got, accepted(w.service("web")))
		}
		p.are(map[lb.Target]string{podAt(1, 2): "ready", podAt(2, 1): "ready"})
		w.later()
		if got := w.targets(); !slices.Equal(got, []lb.Target{podAt(1, 2), podAt(2, 1)}) || accepted(w.service("web")) != "True Accepted" {
			t.Errorf("targets %v, %s", got, accepted(w.service("web")))
		}
	})
}

// Annotations for missing Services, as after a restore, are removed by the regular resync.
func TestOpeningsOfServicesThatAreGone(t *testing.T) {
	inPodWorld(t, hcloudsim.Options{}, func(w *world, p *pods) {
		p.are(map[lb.Target]string{podAt(1, 1): "ready"})
		w.create(podService())
		kept := w.openings()
		left := podingress.Ingress{
			Endpoints: []netip.AddrPort{netip.AddrPortFrom(podAt(1, 1).Address, 80)},
		}.String()
		w.editNode("node-2", func(n *corev1.Node) {
			n.Annotations = map[string]string{podingress.Annotation("gone"): left, podingress.Annotation("web-uid"): left, "other": "stays"}
		})
		w.later()
		if w.openings() != kept {
			t.Errorf("opened:\n%s\nwant:\n%s", w.openings(), kept)
		}
	})
}
