//go:build linux

package packets

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/routes/agent"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
	"github.com/underlay-ccm/underlay/test/testenv/process"
)

// A cluster with flannel is moved to Underlay by the commands of docs/how-to/move-from-flannel.md,
// while packets flow.
func TestMoveFromFlannel(t *testing.T) {
	for _, c := range []struct {
		name          string
		metal, tunnel bool
		// killed: flannel could not remove its packet filter; old versions never do.
		killed bool
	}{
		{name: "from the tunnel to the cloud's routes", tunnel: true, killed: true},
		{name: "from the tunnel to kernel routes", metal: true, tunnel: true},
		{name: "from host-gw to kernel routes", metal: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &move{page: page(t, "move-from-flannel.md"), metal: c.metal, killed: c.killed, pods: map[string]*netlab.Pod{}, services: map[string]netip.Addr{}}
			m.overlay = overlay{tunnel: c.tunnel, uplink: "private", subnets: map[*netlab.Machine]netip.Prefix{}}
			if c.metal {
				m.uplink = "uplink"
			}
			m.begin(t)
			m.prepare(t)
			for _, machine := range m.machines {
				m.machine(t, machine)
			}
			m.otherWay(t)
			m.nothingLeft(t)
		})
	}
}

// move is a cluster with flannel. On each machine runs a pod of a ReplicaSet, "web-" and the
// machine's name, behind a Service of that name, and one of a DaemonSet, "log-".
type move struct {
	overlay
	f             *netlab.Lab
	page          commands
	metal, killed bool
	pods          map[string]*netlab.Pod
	owners        map[string]metav1.OwnerReference
	services      map[string]netip.Addr
	nodes         map[string]string // the unchanged fields of each
	allocator     *process.Process
}

// begin creates the cluster: podCIDRs by kube-controller-manager, and flannel.
func (m *move) begin(t *testing.T) {
	m.f = start(t, netlab.Options{
		Metal: m.metal, IPv4Only: true, WithoutManager: true, Plugins: pluginFolder(t),
	})
	for _, name := range []string{"one", "two", "three"} {
		machine, err := m.f.Rent(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if err := machine.Join(t.Context()); err != nil {
			t.Fatal(err)
		}
		m.machines = append(m.machines, machine)
	}
	var err error
	if m.allocator, err = m.f.StartPeer(t.Context(), "--cluster-cidr="+podRange); err != nil {
		t.Fatal(err)
	}
	for _, machine := range m.machines {
		await(t, machine.Name+" has a podCIDR", func() string {
			if len(podCIDRs(t, m.f, machine.Name)) == 0 {
				return "none"
			}
			return ""
		})
		m.subnets[machine] = podCIDRs(t, m.f, machine.Name)[0]
	}
	for _, machine := range m.machines {
		m.install(t, m.f, machine)
		// The setting of kubeadm for flannel.
		machine.DetectLocal = "detectLocalMode: ClusterCIDR\nclusterCIDR: " + podRange
		if err := machine.StartProxy(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	answerEverywhere(t, m.f, m.machines...)
	m.nodes = m.stays(t)
	m.makeOwners(t)
	for _, machine := range m.machines {
		m.runPods(t, machine)
		m.serve(t, machine)
	}
	m.works(t)
}

// stays returns the fields that every Node must keep.
func (m *move) stays(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, machine := range m.machines {
		n := m.node(t, machine)
		all[n.Name] = fmt.Sprint(n.UID, " ", n.Spec.PodCIDR, " ", n.Spec.PodCIDRs)
	}
	return all
}

func (m *move) node(t *testing.T, machine *netlab.Machine) *corev1.Node {
	t.Helper()
	n, err := m.f.Client.CoreV1().Nodes().Get(t.Context(), machine.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// makeOwners creates flannel's DaemonSet, and the owners of pods, from which drain decides what to
// evict. No controller handles them.
func (m *move) makeOwners(t *testing.T) {
	t.Helper()
	if _, err := m.f.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-flannel"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	apps := m.f.Client.AppsV1()
	shape := func(name string) (metav1.ObjectMeta, *metav1.LabelSelector, corev1.PodTemplateSpec) {
		labels := map[string]string{"app": name}
		return metav1.ObjectMeta{Name: name}, &metav1.LabelSelector{MatchLabels: labels},
			corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: name, Image: name}}},
			}
	}
	var flannel, log appsv1.DaemonSet
	var web appsv1.ReplicaSet
	flannel.ObjectMeta, flannel.Spec.Selector, flannel.Spec.Template = shape("kube-flannel-ds")
	flannel.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelOSStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"linux"}}},
			}},
		},
	}}
	log.ObjectMeta, log.Spec.Selector, log.Spec.Template = shape("log")
	web.ObjectMeta, web.Spec.Selector, web.Spec.Template = shape("web")
	_, err := apps.DaemonSets("kube-flannel").Create(t.Context(), &flannel, metav1.CreateOptions{})
	logs, errLog := apps.DaemonSets(metav1.NamespaceDefault).Create(t.Context(), &log,
		metav1.CreateOptions{})
	webs, errWeb := apps.ReplicaSets(metav1.NamespaceDefault).Create(t.Context(), &web,
		metav1.CreateOptions{})
	if err := errors.Join(err, errLog, errWeb); err != nil {
		t.Fatal(err)
	}
	m.owners = map[string]metav1.OwnerReference{
		"log": *metav1.NewControllerRef(logs, appsv1.SchemeGroupVersion.WithKind("DaemonSet")),
		"web": *metav1.NewControllerRef(webs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet")),
	}
}

// runPods runs a machine's pods, which must get addresses of its Node.
func (m *move) runPods(t *testing.T, machine *netlab.Machine) {
	t.Helper()
	for kind, owner := range m.owners {
		name := kind + "-" + machine.Name
		p := runPods(t, m.f, map[string]string{"app": kind, "pod": name}, [2]string{name, machine.Name})[0]
		patch, err := json.Marshal(map[string]any{"metadata": metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{owner}}})
		if err != nil {
			t.Fatal(err)
		}
		pods := m.f.Client.CoreV1().Pods(metav1.NamespaceDefault)
		if _, err := pods.Patch(t.Context(), name, types.MergePatchType, patch,
			metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if own := m.subnets[machine]; !own.Contains(p.IPv4) {
			t.Errorf("%s has %s, its Node %s", name, p.IPv4, own)
		}
		m.pods[name] = p
	}
}

// serve creates the Service of a machine's pod "web-".
func (m *move) serve(t *testing.T, machine *netlab.Machine) {
	t.Helper()
	name := "web-" + machine.Name
	service, err := m.f.Client.CoreV1().Services(metav1.NamespaceDefault).Create(t.Context(),
		&corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.ServiceSpec{
				Selector: map[string]string{"pod": name},
				Ports:    []corev1.ServicePort{{Port: netlab.EchoPort, Protocol: corev1.ProtocolTCP}},
			},
		}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m.services[name] = netip.MustParseAddr(service.Spec.ClusterIP)
}

// works expects that all pods reach each other and every other machine's Service from their own
// addresses, with packets of every size, and the outside from the machine's address.
func (m *move) works(t *testing.T) {
	t.Helper()
	pods := slices.Collect(maps.Values(m.pods))
	everyPodReachesEveryPod(t, pods)
	for _, p := range pods {
		reaches(t, of(p), ownPort(netlab.OutsideIPv4), "outside", p.Machine.Public.IPv4, "udp")
		for _, machine := range m.machines {
			if web := "web-" + machine.Name; machine != p.Machine {
				reaches(t, of(p), echo(m.services[web]), web, p.IPv4, "tcp")
				if p.Name != web && strings.HasPrefix(p.Name, "web-") {
					manyBytes(t, p, m.pods[web])
				}
			}
		}
	}
}

// streams starts a stream from each to each of the pods "web-" on these machines.
func (m *move) streams(t *testing.T, machines []*netlab.Machine) []*netlab.Stream {
	t.Helper()
	var all []*netlab.Stream
	for _, from := range machines {
		for _, to := range machines {
			if from == to {
				continue
			}
			s, err := netlab.StartStream(t.Context(), m.pods["web-"+from.Name].Namespace, echo(m.pods["web-"+to.Name].IPv4), pace)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Stop() })
			all = append(all, s)
		}
	}
	flows(t, all, aWhile)
	return all
}

// prepare is step 1, and the label that keeps flannel off nodes that have moved.
func (m *move) prepare(t *testing.T) {
	streams := m.streams(t, m.machines)
	m.allocator.Kill()
	if err := m.f.StartManager(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, machine := range m.machines {
		await(t, machine.Name+" is served by underlay-ccm", func() string {
			if m.node(t, machine).Spec.ProviderID == "" {
				return "no provider ID"
			}
			for _, network := range m.f.Cloud.DataPlane().Networks {
				to := func(r hcloudsim.RouteSeed) bool { return r.Destination == m.subnets[machine] }
				if !m.metal && !slices.ContainsFunc(network.Routes, to) {
					return fmt.Sprintf("the network's routes are %v", network.Routes)
				}
			}
			return ""
		})
	}
	flows(t, streams, aWhile)
	unhurt(t, streams)
	m.kubectl(t, "kubectl -n kube-flannel patch", nil)
	for _, machine := range m.machines {
		if !m.flannelBelongs(t, machine) {
			t.Errorf("the DaemonSet leaves %s before it has moved", machine.Name)
		}
	}
}

// flannelBelongs reports whether flannel's DaemonSet would run a pod on a node.
func (m *move) flannelBelongs(t *testing.T, machine *netlab.Machine) bool {
	t.Helper()
	set, err := m.f.Client.AppsV1().DaemonSets("kube-flannel").Get(t.Context(), "kube-flannel-ds", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	labels := m.node(t, machine).Labels
	affinity := set.Spec.Template.Spec.Affinity.NodeAffinity
	required := affinity.RequiredDuringSchedulingIgnoredDuringExecution
	return slices.ContainsFunc(required.NodeSelectorTerms, func(term corev1.NodeSelectorTerm) bool {
		return !slices.ContainsFunc(term.MatchExpressions, func(r corev1.NodeSelectorRequirement) bool {
			value, has := labels[r.Key]
			switch r.Operator {
			case corev1.NodeSelectorOpIn:
				return !slices.Contains(r.Values, value)
			case corev1.NodeSelectorOpDoesNotExist:
				return has
			default:
				t.Errorf("the page's patch uses %s, which this test doesn't know", r.Operator)
				return true
			}
		})
	})
}

// machine moves one machine.
func (m *move) machine(t *testing.T, machine *netlab.Machine) {
	others := slices.DeleteFunc(slices.Clone(m.machines), func(o *netlab.Machine) bool {
		return o == machine
	})
	streams := m.streams(t, others)
	m.evict(t, machine, "web", "kubectl drain")
	if !m.node(t, machine).Spec.Unschedulable {
		t.Errorf("%s is not cordoned", machine.Name)
	}
	m.kubectl(t, "kubectl label node", machine)
	if m.flannelBelongs(t, machine) {
		t.Errorf("the DaemonSet stays on %s", machine.Name)
	}
	if !m.killed {
		m.end(t, machine)
	}
	if err := machine.StartAgent(t.Context()); err != nil {
		t.Fatal(err)
	}
	ready(t, machine)
	m.evict(t, machine, "log", "kubectl delete pods")
	m.shell(t, machine, "rm -f /etc/cni/net.d/")
	m.shell(t, machine, "ip link delete cni0")
	m.runPods(t, machine)
	m.kubectl(t, "kubectl uncordon", machine)
	m.works(t)
	unhurt(t, streams)
	unhurt(t, m.streams(t, m.machines))
}

// evict runs the page's command that deletes a machine's pod of a kind, and acts as the kubelet.
func (m *move) evict(t *testing.T, machine *netlab.Machine, kind, begins string) {
	t.Helper()
	arguments := m.page.arguments(t, begins, machine.Name)
	ended := make(chan error, 1)
	go func() {
		_, err := m.f.ControlPlane.Kubectl(t.Context(), arguments...)
		ended <- err
	}()
	m.evicted(t, machine, kind)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// evicted waits until a machine's pod was deleted, and ends it.
func (m *move) evicted(t *testing.T, machine *netlab.Machine, kind string) {
	t.Helper()
	p := m.pods[kind+"-"+machine.Name]
	await(t, p.Name+" is to end", func() string {
		object, err := m.f.Client.CoreV1().Pods(metav1.NamespaceDefault).Get(t.Context(), p.Name,
			metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if object.DeletionTimestamp == nil {
			return "nobody has deleted it"
		}
		return ""
	})
	if err := p.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	delete(m.pods, p.Name)
}

// otherWay is the last steps: packets no longer use flannel's routes, then flannel is removed.
func (m *move) otherWay(t *testing.T) {
	m.kubectl(t, "kubectl delete namespace", nil)
	streams := m.streams(t, m.machines)
	for _, machine := range m.machines {
		m.shell(t, machine, "sysctl -w")
	}
	for _, machine := range m.machines {
		m.leaveRoutes(t, machine)
		flows(t, streams, aWhile)
	}
	for _, machine := range m.machines {
		if m.tunnel {
			m.shell(t, machine, "ip link delete flannel.1")
		}
		if m.killed {
			m.shell(t, machine, "nft delete table ip flannel-ipv4")
		}
		flows(t, streams, aWhile)
	}
	unhurt(t, streams)
	for _, machine := range m.machines {
		machine.DetectLocal = ""
		if err := machine.RestartProxy(t.Context()); err != nil {
			t.Fatal(err)
		}
		ready(t, machine)
	}
	m.works(t)
}

// leaveRoutes removes flannel's routes from a machine.
func (m *move) leaveRoutes(t *testing.T, machine *netlab.Machine) {
	t.Helper()
	stepBehind, flush := "ip route show dev flannel.1 |", "ip route flush dev flannel.1"
	if !m.tunnel {
		stepBehind, flush = "ip route show root", "ip route flush root"
	}
	if m.metal {
		m.shell(t, machine, stepBehind)
		await(t, machine.Name+" has routes of ours to all others", func() string {
			now := run(t, machine, "ip", "route", "show", "proto", "201")
			for _, peer := range m.machines {
				if peer != machine && !strings.Contains(now, m.subnets[peer].String()+" via") {
					return now
				}
			}
			return ""
		})
	}
	m.shell(t, machine, flush)
}

// nothingLeft expects the state of a cluster with Underlay only.
func (m *move) nothingLeft(t *testing.T) {
	if now := m.stays(t); !maps.Equal(now, m.nodes) {
		t.Errorf("the Nodes are %v, and were %v", now, m.nodes)
	}
	for _, machine := range m.machines {
		if links := run(t, machine, "ip", "-o", "link"); strings.Contains(links, "flannel") || strings.Contains(links, "cni0") {
			t.Errorf("%s has\n%s", machine.Name, links)
		}
		for line := range strings.Lines(run(t, machine, "ip", "route", "show", "root", podRange)) {
			if !strings.Contains(line, "proto 201") && !strings.Contains(line, "dev veth") {
				t.Errorf("%s has the route %s", machine.Name, line)
			}
		}
		for _, p := range m.pods {
			if p.Machine != machine {
				reaches(t, of(p), ownPort(between(machine)), machine.Name, p.IPv4, "tcp")
			}
		}
		peers := kube.Condition(m.node(t, machine), agent.PeersReachable)
		if peers == nil || peers.Status != corev1.ConditionTrue {
			t.Errorf("%s: %+v", machine.Name, peers)
		}
	}
}

// kubectl runs the page's command with a prefix, for a node if it has one.
func (m *move) kubectl(t *testing.T, begins string, machine *netlab.Machine) {
	t.Helper()
	node := ""
	if machine != nil {
		node = machine.Name
	}
	if _, err := m.f.ControlPlane.Kubectl(t.Context(), m.page.arguments(t, begins,
		node)...); err != nil {
		t.Fatal(err)
	}
}

// shell runs the page's command with a prefix on a machine.
func (m *move) shell(t *testing.T, machine *netlab.Machine, begins string) {
	t.Helper()
	line := m.page.line(t, begins)
	line = strings.NewReplacer("/etc/cni/net.d", machine.ConfigDir(), "eth1", m.uplink).Replace(line)
	run(t, machine, "sh", "-c", line)
}
