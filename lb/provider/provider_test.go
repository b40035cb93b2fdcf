package provider_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"

	"github.com/underlay-ccm/underlay/lb"
	"github.com/underlay-ccm/underlay/lb/lbtest"
	"github.com/underlay-ccm/underlay/lb/provider"
)

func service() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "web-uid", Annotations: map[string]string{}},
		Spec: corev1.ServiceSpec{
			Type:  corev1.ServiceTypeLoadBalancer,
			Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP, NodePort: 30080}},
		},
	}
}

func nodes(n int) (nodes []*corev1.Node) {
	for i := range n {
		nodes = append(nodes, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node-", i+1)}, Spec: corev1.NodeSpec{ProviderID: fmt.Sprint("hcloud://", i+1)},
		})
	}
	return nodes
}

func newProvider(cloud *lbtest.Cloud) (*provider.Provider, *record.FakeRecorder) {
	events := record.NewFakeRecorder(100)
	return provider.New(cloud, lb.Defaults{Location: "fsn1", Network: 7}, events), events
}

// The calls of upstream's controller over a Service's life, and what each costs.
func TestCallsOfUpstreamsController(t *testing.T) {
	cloud := lbtest.NewCloud()
	p, _ := newProvider(cloud)
	ctx, svc := t.Context(), service()
	expect := func(what string, reads int, writes ...string) {
		t.Helper()
		if r, w := cloud.Counts(); r != reads || !slices.Equal(w, writes) {
			t.Errorf("%s: %d reads, changes %q, want %d and %q", what, r, w, reads, writes)
		}
	}
	if _, exists, err := p.GetLoadBalancer(ctx, "demo", svc); exists || err != nil {
		t.Errorf("before: exists %t, %v", exists, err)
	}
	if err := p.UpdateLoadBalancer(ctx, "demo", svc, nodes(2)); err == nil {
		t.Error("what is not there was updated")
	}
	cloud.Counts()

	status, err := p.EnsureLoadBalancer(ctx, "demo", svc, nodes(2))
	if err != nil || len(status.Ingress) != 3 || status.Ingress[0].IP != "203.0.113.1" {
		t.Fatalf("%v, %v", status, err)
	}
	expect("creation", 2, `create "awebuid" with 1 listeners and 2 targets`)
	if name := p.GetLoadBalancerName(ctx, "demo", svc); name != cloud.All()[0].Name {
		t.Errorf("name %q, the cloud has %q", name, cloud.All()[0].Name)
	}
	if err := p.UpdateLoadBalancer(ctx, "demo", svc, nodes(3)); err != nil {
		t.Fatal(err)
	}
	expect("a node joins", 2, "add server 3")
	if _, err := p.EnsureLoadBalancer(ctx, "demo", svc, nodes(3)); err != nil {
		t.Fatal(err)
	}
	expect("nothing to do", 1)
	got, exists, err := p.GetLoadBalancer(ctx, "demo", svc)
	if !exists || err != nil || len(got.Ingress) != 3 {
		t.Errorf("exists %t, %v, %v", exists, got, err)
	}
	if _, exists, _ := p.GetLoadBalancer(ctx, "another", svc); exists {
		t.Error("another cluster has it too")
	}
	for range 2 { // upstream may ask twice
		if err := p.EnsureLoadBalancerDeleted(ctx, "demo", svc); err != nil {
			t.Fatal(err)
		}
	}
	if len(cloud.All()) != 0 {
		t.Error("left behind")
	}
}

// What cannot be is an error and an Event, and what can be is done all the same.
func TestRefusalsAndPartsThatAreNotServed(t *testing.T) {
	cloud := lbtest.NewCloud(lb.State{ID: 9, Name: "taken"})
	p, events := newProvider(cloud)
	before := cloud.String()
	for name, change := range map[string]func(*corev1.Service){
		"spec.loadBalancerSourceRanges": func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"} },
		lb.AnnotationType:               func(s *corev1.Service) { s.Annotations[lb.AnnotationType] = "LB" },
		"somebody else":                 func(s *corev1.Service) { s.Annotations[lb.AnnotationName] = "taken" },
	} {
		svc := service()
		change(svc)
		status, err := p.EnsureLoadBalancer(t.Context(), "demo", svc, nodes(1))
		if status != nil || err == nil || !strings.Contains(err.Error(), name) || len(events.Events) == 0 || cloud.String() != before {
			t.Errorf("%s: %v, %v, %d Events", name, status, err, len(events.Events))
		}
		for len(events.Events) > 0 {
			<-events.Events
		}
	}
	svc := service()
	svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Port: 53, Protocol: corev1.ProtocolUDP, NodePort: 30053})
	status, err := p.EnsureLoadBalancer(t.Context(), "demo", svc, nodes(1))
	if err != nil || len(status.Ingress[0].Ports) != 2 || status.Ingress[0].Ports[1].Error == nil || len(events.Events) != 1 {
		t.Errorf("UDP beside TCP: %v, %v, %d Events", status, err, len(events.Events))
	}
	cloud.SetFault(func(lb.Op) error { return errors.New("unreachable") })
	if _, err := p.EnsureLoadBalancer(t.Context(), "demo", service(), nodes(3)); err == nil {
		t.Error("a target that could not be added is no error")
	}
}

// A managed certificate goes with its Service, also if the load balancer is gone already.
func TestCertificatesGoToo(t *testing.T) {
	cloud := lbtest.NewCloud()
	p, _ := newProvider(cloud)
	svc := service()
	svc.Annotations[lb.HetznerPrefix+"protocol"] = "https"
	svc.Annotations[lb.HetznerPrefix+"certificate-type"] = "managed"
	svc.Annotations[lb.HetznerPrefix+"http-managed-certificate-domains"] = "example.com"
	if _, err := p.EnsureLoadBalancer(t.Context(), "demo", svc, nodes(1)); err != nil {
		t.Fatal(err)
	}
	if err := p.EnsureLoadBalancerDeleted(t.Context(), "demo", svc); err != nil {
		t.Fatal(err)
	}
	if left, err := cloud.Certificates(t.Context()); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
