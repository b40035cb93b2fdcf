//go:build linux

package policy_test

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/netfilter"
	"github.com/underlay-ccm/underlay/policy"
	"github.com/underlay-ccm/underlay/test/bench/results"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

// The cluster: each namespace has as many policies as apps, each of which allows two apps of the
// namespace, all pods of another one, and a block.
const (
	nodeCount  = 100
	podCount   = 10_000
	namespaces = 100
	apps       = 10 // 1,000 policies

	ours     = "underlay"
	scenario = "1,000 NetworkPolicies, 10,000 pods on 100 nodes"
)

func namespaceOf(i int) string { return fmt.Sprint("team-", i%namespaces) }

func podOf(i int) policy.Pod {
	node := i % nodeCount
	return policy.Pod{
		Name: policy.Name{Namespace: namespaceOf(i / nodeCount), Name: fmt.Sprint("pod-", i)}, Node: fmt.Sprint("node-", node),
		Labels: map[string]string{"app": fmt.Sprint("app-", i%apps), "pod-template-hash": "5d4f8c7b9"},
		Addresses: []netip.Addr{
			netip.AddrFrom4([4]byte{10, byte(node), byte(i / nodeCount / 250), byte(2 + i/nodeCount%250)}),
			netip.MustParseAddr(fmt.Sprintf("fd00:0:0:%x::%x", node+1, 2+i/nodeCount)),
		},
		Ports: []policy.NamedPort{{Name: "http", Protocol: policy.TCP, Port: 8080}},
	}
}

func app(i int) *policy.Selector {
	return &policy.Selector{{Key: "app", Operator: policy.In, Values: []string{fmt.Sprint("app-", i%apps)}}}
}

// objectOf returns what the API server has of a pod, and the agent's cache keeps.
func objectOf(b *testing.B, p policy.Pod) *corev1.Pod {
	b.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name.Name, UID: types.UID(fmt.Sprintf("%036s", p.Name.Name)), ResourceVersion: "1234567", Labels: p.Labels},
		Spec:       corev1.PodSpec{NodeName: p.Node},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, port := range p.Ports {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Ports: []corev1.ContainerPort{{Name: port.Name, ContainerPort: int32(port.Port)}}})
	}
	for _, a := range p.Addresses {
		pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: a.String()})
	}
	trimmed, err := kube.TrimPod(pod)
	if err != nil {
		b.Fatal(err)
	}
	return trimmed.(*corev1.Pod)
}

// cluster returns the index of node-0's agent, and its cache of Pods.
func cluster(b *testing.B) (*policy.Index, cache.Store) {
	b.Helper()
	x, pods := policy.NewIndex("node-0"), cache.NewStore(cache.MetaNamespaceKeyFunc)
	nodes := map[string]policy.Node{}
	for i := range nodeCount {
		nodes[fmt.Sprint("node-", i)] = policy.Node{PodCIDRs: []netip.Prefix{
			netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), 0, 0}), 16),
			netip.MustParsePrefix(fmt.Sprintf("fd00:0:0:%x::/64", i+1)),
		}}
	}
	x.SetNodes(nodes)
	for i := range namespaces {
		x.SetNamespace(namespaceOf(i), map[string]string{"team": fmt.Sprint(i)})
		for a := range apps {
			next := &policy.Selector{{Key: "team", Operator: policy.In, Values: []string{fmt.Sprint((i + 1) % namespaces)}}}
			peers := []policy.Peer{
				{Pods: app(a + 1)},
				{Pods: app(a + 2)},
				{Namespaces: next},
				{Block: netip.MustParsePrefix("192.0.2.0/24"), Except: []netip.Prefix{netip.MustParsePrefix("192.0.2.7/32")}},
			}
			allow := []policy.Allow{{Peers: peers, Ports: []policy.Port{{Protocol: policy.TCP, Name: "http"}, {Protocol: policy.UDP, Number: 53}}}}
			x.SetPolicy(policy.Policy{
				Name: policy.Name{Namespace: namespaceOf(i), Name: fmt.Sprint("policy-", a)}, Pods: *app(a),
				Types: []policy.Direction{policy.Ingress, policy.Egress}, Ingress: allow, Egress: allow,
			})
		}
	}
	for i := range podCount {
		pod := objectOf(b, podOf(i))
		if err := pods.Add(pod); err != nil {
			b.Fatal(err)
		}
		x.SetPod(kube.PodOf(pod))
	}
	return x, pods
}

func heap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}

// BenchmarkAPodStarts starts a pod of another node, which node-0's policies allow, and ends it:
// from the change of the object to the filter in the kernel.
func BenchmarkAPodStarts(b *testing.B) {
	space := netns.New(b)
	before := heap()
	began := time.Now()
	x, pods := cluster(b)
	rules := x.Ruleset()
	built := time.Since(began)
	used := heap() - before
	runtime.KeepAlive(pods)
	var table *netfilter.PolicyTable
	apply := func(r policy.Ruleset) {
		var err error
		space.Do(func() {
			if table == nil {
				table, err = netfilter.NewPolicyTable(netfilter.Options{})
			}
			if err == nil {
				_, err = table.Apply(b.Context(), &r)
			}
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	began = time.Now()
	apply(rules)
	filled := time.Since(began)
	elements := 0
	for _, s := range rules.Sets {
		elements += len(s.Elements[0]) + len(s.Elements[1])
	}
	extra := podOf(podCount + 1) // of node-1, in a namespace of pods of node-0
	var decided, total []time.Duration
	for b.Loop() {
		began := time.Now()
		x.SetPod(extra)
		r := x.Ruleset()
		decided = append(decided, time.Since(began))
		apply(r)
		total = append(total, time.Since(began))
		x.DeletePod(extra.Name)
		apply(x.Ruleset())
	}
	if len(rules.Sets) == 0 || len(rules.Pods) == 0 {
		b.Fatalf("%d sets and %d pods", len(rules.Sets), len(rules.Pods))
	}
	slices.Sort(decided)
	slices.Sort(total)
	median := func(all []time.Duration) float64 { return float64(all[len(all)/2].Microseconds()) / 1000 }
	for _, f := range []struct {
		quantity, unit string
		value          float64
		text           string
	}{
		{"a pod that starts, median", "ms", median(total), "of another node, from the change of the object to the filter in the kernel."},
		{"filter from none", "ms", 1000 * filled.Seconds(), "all sets and chains, in one transaction."},
		{"memory of policies", "MiB", used, "of the agent's process: its cache of Pods, and what it derives from them."},
	} {
		results.Explain(b, results.Note{Quantity: f.quantity, Text: f.text})
		results.Record(b, results.Figure{Scenario: scenario, Contender: ours, Quantity: f.quantity, Unit: f.unit, Value: f.value})
	}
	b.ReportMetric(median(decided), "ms-decided")
	b.ReportMetric(median(total), "ms-in-kernel")
	b.ReportMetric(built.Seconds()*1000, "ms-to-build")
	b.ReportMetric(filled.Seconds()*1000, "ms-to-fill")
	b.ReportMetric(used, "MiB")
	b.ReportMetric(float64(len(rules.Sets)), "sets")
	b.ReportMetric(float64(elements), "elements")
}
