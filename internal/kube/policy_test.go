package kube

import (
	"net/netip"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/underlay-ccm/underlay/policy"
)

func TestPolicyOf(t *testing.T) {
	var given networkingv1.NetworkPolicy
	err := yaml.UnmarshalStrict([]byte(`
metadata: {namespace: shop, name: db}
spec:
  podSelector: {matchLabels: {app: db}}
  policyTypes: [Ingress, Egress]
  ingress:
  - from:
    - podSelector: {}
      namespaceSelector: {matchExpressions: [{key: team, operator: NotIn, values: [a, b]}]}
    - ipBlock: {cidr: 10.0.0.5/8, except: [10.1.0.0/16]}
    ports: [{port: sql}, {port: 1000, endPort: 2000, protocol: UDP}, {protocol: SCTP}]
  egress:
  - to: [{podSelector: {}}]
  - {}
`), &given)
	if err != nil {
		t.Fatal(err)
	}
	want := policy.Policy{
		Name: policy.Name{Namespace: "shop", Name: "db"}, Types: []policy.Direction{policy.Ingress, policy.Egress},
		Pods: policy.Selector{{Key: "app", Operator: policy.In, Values: []string{"db"}}},
		Ingress: []policy.Allow{{
			Peers: []policy.Peer{
				{Pods: &policy.Selector{}, Namespaces: &policy.Selector{{Key: "team", Operator: policy.NotIn, Values: []string{"a", "b"}}}},
				{Block: netip.MustParsePrefix("10.0.0.0/8"), Except: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}},
			},
			Ports: []policy.Port{
				{Protocol: policy.TCP, Name: "sql"},
				{Protocol: policy.UDP, Number: 1000, End: 2000},
				{Protocol: policy.SCTP},
			},
		}},
		Egress: []policy.Allow{{Peers: []policy.Peer{{Pods: &policy.Selector{}}}}, {}},
	}
	// An empty selector is a selector, whether its requirements are nil or not.
	got := PolicyOf(&given)
	for _, peer := range append(got.Ingress[0].Peers, got.Egress[0].Peers...) {
		if peer.Pods != nil && len(*peer.Pods) == 0 {
			*peer.Pods = policy.Selector{}
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %#v\nwant %#v", got, want)
	}
	if numbered := (networkingv1.NetworkPolicyPort{
		Port: ptr.To(intstr.FromInt32(80)),
	}); allowOf(nil, []networkingv1.NetworkPolicyPort{numbered}).Ports[0] != (policy.Port{
		Protocol: policy.TCP, Number: 80,
	}) {
		t.Error("a port without protocol is not one of TCP")
	}
}

func TestPodOf(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "db", Labels: map[string]string{"app": "db"}, CreationTimestamp: metav1.Unix(7, 0),
			Annotations: map[string]string{"large": "text"},
		},
		Spec: corev1.PodSpec{
			NodeName: "n1", HostNetwork: true,
			Containers: []corev1.Container{{Ports: []corev1.ContainerPort{
				{Name: "sql", ContainerPort: 5432, Protocol: corev1.ProtocolTCP}, {ContainerPort: 80},
			}}},
			InitContainers: []corev1.Container{
				{RestartPolicy: &always, Ports: []corev1.ContainerPort{{Name: "proxy", ContainerPort: 99, Protocol: corev1.ProtocolUDP}}},
				{Ports: []corev1.ContainerPort{{Name: "once", ContainerPort: 98}}},
			},
		},
		Status: corev1.PodStatus{Phase: corev1.PodFailed, PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}, {IP: "nonsense"}}},
	}
	want := policy.Pod{
		Name: policy.Name{Namespace: "shop", Name: "db"}, Labels: map[string]string{"app": "db"}, Node: "n1",
		HostNetwork: true, Ended: true, Created: 7,
		Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")},
		Ports:     []policy.NamedPort{{Name: "sql", Protocol: policy.TCP, Port: 5432}, {Name: "proxy", Protocol: policy.UDP, Port: 99}},
	}
	if got := PodOf(pod); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	trimmed, err := TrimPod(pod)
	if err != nil {
		t.Fatal(err)
	}
	if got := PodOf(trimmed.(*corev1.Pod)); !reflect.DeepEqual(got, want) {
		t.Errorf("trimmed it is %+v, want %+v", got, want)
	}
	if len(trimmed.(*corev1.Pod).Annotations) > 0 {
		t.Error("annotations are kept in the cache")
	}
}
