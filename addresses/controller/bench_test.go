package controller

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/internal/kube"
)

// large returns a view of many dual-stack Services, every tenth with policy Local.
func large(services, nodes, slicesOfEach int) (v view, all []*corev1.Node) {
	v = view{
		services: map[types.UID]*corev1.Service{}, namespaces: map[string]labels.Set{},
		slices: map[types.NamespacedName][]*discoveryv1.EndpointSlice{},
	}
	for i := range nodes {
		var r addresses.Report
		for j := range 2 * services / nodes {
			r.Held = append(r.Held, addresses.Hold{
				Address: netip.AddrFrom4([4]byte{10, 0, byte(i), byte(j)}), Epoch: 7,
			})
		}
		r.Segments = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16"), netip.MustParsePrefix("2001:db8::/64")}
		text, _ := r.MarshalText()
		all = append(all, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprint("node-", i), Annotations: map[string]string{addresses.ReportAnnotation: string(text)},
			},
			Status: corev1.NodeStatus{
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
				Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.1.%d.%d", i/250, i%250)}},
			},
		})
	}
	class := kube.AddressClass
	for i := range services {
		svc := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: fmt.Sprint("s", i), UID: types.UID(fmt.Sprint("uid-", i)), ResourceVersion: "1",
				CreationTimestamp: metav1.Unix(int64(i), 0),
			},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: &class,
				Ports: []corev1.ServicePort{
					{Port: 80, Protocol: corev1.ProtocolTCP}, {Port: 443, Protocol: corev1.ProtocolTCP},
				},
			},
		}
		dualStack(svc)
		if i%10 == 0 {
			localOnly(svc)
		}
		v.services[svc.UID] = svc
		of := types.NamespacedName{Namespace: "shop", Name: svc.Name}
		yes := true
		for j := range slicesOfEach {
			slice := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
			if j%2 == 1 {
				slice.AddressType = discoveryv1.AddressTypeIPv6
			}
			for k := range 20 {
				name := all[(i+k)%nodes].Name
				slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
					NodeName: &name, Conditions: discoveryv1.EndpointConditions{Ready: &yes},
				})
			}
			v.slices[of] = append(v.slices[of], slice)
		}
	}
	return v, all
}

// BenchmarkPass measures the decisions of a pass in a large cluster at rest.
func BenchmarkPass(b *testing.B) {
	pools := []Pool{poolNamed("large", "10.0.0.0/16", "2001:db8::/64")}
	v, nodes := large(1000, 100, 5)
	registry := metrics.NewKubeRegistry()
	m, err := newMetrics(registry)
	if err != nil {
		b.Fatal(err)
	}
	c := &Controller{health: health{}, metrics: m}
	now := time.Now()
	v.fleet = newFleet(nodes, c.health, nil, now)
	p := newPlan(v, addresses.Ledger{}, pools, selection{}, false)
	for _, ch := range c.changes(p) {
		v.services[ch.from.UID] = ch.to
	}
	stored := p.ledger
	b.ReportAllocs()
	for b.Loop() {
		v.fleet = newFleet(nodes, c.health, nil, now)
		p := newPlan(v, stored, pools, selection{}, false)
		c.balance(&p)
		if _, err := p.ledger.MarshalText(); err != nil {
			b.Fatal(err)
		}
		if len(p.freed(stored))+len(p.moves) > 0 {
			b.Fatal("something changes at rest")
		}
		c.show(p)
		if n := len(c.changes(p)); n > 0 {
			b.Fatalf("%d changes at rest", n)
		}
	}
}
