// Package gatewayapi tests that the settings of a Gateway of the Gateway API are applied to load
// balancers, with Contour, one of the API's implementations. The test follows the how-to page,
// command by command. Contour takes minutes to build, so this is no part of "make test"; "make
// gateway-api" builds it and runs this.
package gatewayapi_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The settings of the Gateway are applied to the load balancer, the load balancer's addresses are
// shown on the Gateway, and changes and deletion are followed.
func TestAGatewayGetsALoadBalancer(t *testing.T) {
	w := start(t)
	w.install()
	w.create()
	w.expectBalancer()
	w.expectStatus()
	w.expectEnvoy()
	w.listenersFollow()
	w.annotationsFollow()
	w.policyFollows()
	w.expectLimits()
	w.delete()
	w.page.end()
}

func (w *world) install() {
	w.page.follow("kubectl apply --server-side -f " + manifest + w.contour.Version + "/")
	w.page.names("Contour " + w.contour.Version)
	w.page.names("Gateway API " + w.kubectl("get", "crd", "gateways.gateway.networking.k8s.io",
		"-o", `jsonpath={.metadata.annotations.gateway\.networking\.k8s\.io/bundle-version}`))
	p, err := w.contour.StartProvisioner(w.t.Context(), w.ControlPlane)
	if err != nil {
		w.t.Fatal(err)
	}
	w.endAfter(p)
}

// create applies the page's files, and starts the programs that the pods of Contour's Deployment
// would run.
func (w *world) create() {
	w.Cloud.ResetRequests()
	w.page.follow("kubectl apply -f class.yaml -f gateway.yaml")
	for name, port := range map[string]int32{"postgres": 5432, "mail": 25, "shop": 443} {
		svc := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: port}}},
		}
		if _, err := w.Client.CoreV1().Services(namespace).Create(w.t.Context(), svc,
			metav1.CreateOptions{}); err != nil {
			w.t.Fatal(err)
		}
	}
	w.eventually("the provisioner makes a Service of type LoadBalancer", func(ctx context.Context) (bool, string) {
		// The provisioner creates it last.
		svc, err := w.Client.CoreV1().Services(namespace).Get(ctx, service, metav1.GetOptions{})
		return err == nil && svc.Spec.Type == corev1.ServiceTypeLoadBalancer, fmt.Sprint(err)
	})
	var err error
	w.instance, err = w.contour.StartInstance(w.t.Context(), w.ControlPlane, w.Client,
		metav1.ObjectMeta{Namespace: namespace, Name: gateway})
	if err != nil {
		w.t.Fatal(err)
	}
	w.endAfter(w.instance.Process)
}

// expectBalancer checks that each of the Gateway's annotations and listeners is applied to the load
// balancer.
func (w *world) expectBalancer() {
	w.t.Helper()
	b := w.balancer("three listeners and both nodes", func(b schema.LoadBalancer) bool {
		return len(b.Services) == 3 && len(b.Targets) == 2
	})
	if made := w.changes(); !slices.Equal(made, []string{"POST /v1/load_balancers"}) {
		w.t.Errorf("the load balancer cost the changes %q, want one request", made)
	}
	if b.Location.Name != "nbg1" || b.LoadBalancerType.Name != "lb21" {
		w.t.Errorf("it is a %s in %s, want a lb21 in nbg1", b.LoadBalancerType.Name, b.Location.Name)
	}
	for _, target := range b.Targets {
		if !target.UsePrivateIP {
			w.t.Errorf("target %+v is reached at its public address, want the private one", target)
		}
	}
	svc := w.service()
	if svc.Labels["team"] != "shop" {
		w.t.Errorf("labels of the Service %v, want the Gateway's team=shop among them", svc.Labels)
	}
	if svc.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal {
		w.t.Errorf("externalTrafficPolicy %s, want Local, Contour's default", svc.Spec.ExternalTrafficPolicy)
	}
	ports, check := nodePorts(svc), svc.Spec.HealthCheckNodePort
	for port, want := range map[int]string{
		25:   fmt.Sprintf("tcp to %d with the PROXY protocol, checked by http on %d every 10 s, 3 times", ports[25], check),
		443:  fmt.Sprintf("tcp to %d with the PROXY protocol, checked by http on %d every 10 s, 3 times", ports[443], check),
		5432: fmt.Sprintf("tcp to %d, checked by http on %d every 5 s, 2 times", ports[5432], check),
	} {
		if got := listeners(b)[port]; got != want {
			w.t.Errorf("listener %d: %s; want %s", port, got, want)
		}
	}
}

// expectStatus checks the status that the Gateway's author reads.
func (w *world) expectStatus() {
	w.t.Helper()
	w.page.follow("kubectl -n edge wait --for=condition=Programmed")
	w.page.follow("kubectl -n edge get service envoy-tcp")
	b := w.balancer("a private address", func(b schema.LoadBalancer) bool { return len(b.PrivateNet) == 1 })
	w.eventually("the Gateway has the load balancer's addresses", w.hasAddresses(b.PublicNet.IPv4.IP, b.PrivateNet[0].IP))
	shown := strings.Fields(w.page.follow("kubectl -n edge get gateway tcp -o jsonpath="))
	if !slices.Contains(shown, b.PublicNet.IPv4.IP) {
		w.t.Errorf("the page's command shows %q, want %s among it", shown, b.PublicNet.IPv4.IP)
	}
	w.page.follow("kubectl -n edge describe service envoy-tcp")
	w.page.skip("underlayctl inspect service NAMESPACE/NAME") // test/checks/docs/run executes it
	for _, listener := range []string{"postgres", "smtp", "tls"} {
		if routes := w.kubectl("-n", namespace, "get", "gateway", gateway,
			"-o", `jsonpath={.status.listeners[?(@.name=="`+listener+`")].attachedRoutes}`); routes != "1" {
			w.t.Errorf("listener %s of the Gateway has %q routes, want 1", listener, routes)
		}
	}
}

// expectEnvoy checks Envoy's configuration of the PROXY protocol: listeners for TLS expect it;
// those for TCP don't, so that the backends of Envoy get the header.
func (w *world) expectEnvoy() {
	w.t.Helper()
	p, err := w.instance.WatchListeners()
	if err != nil {
		w.t.Fatal(err)
	}
	w.endAfter(p)
	want := map[string]bool{"tcp-25": false, "tcp-5432": false, "https-443": true}
	w.eventually("Envoy is told of three listeners, and to expect the PROXY protocol for TLS alone", func(context.Context) (bool, string) {
		told, err := envoyListeners(p.Log)
		for name, expected := range want {
			if got, is := told[name]; !is || got != expected {
				return false, fmt.Sprintf("%v, %v", told, err)
			}
		}
		return err == nil, fmt.Sprint(err)
	})
}

func (w *world) listenersFollow() {
	w.t.Helper()
	before := nodePorts(w.service())
	w.kubectl("-n", namespace, "annotate", "service", service, "example.com/by=hand")
	w.Cloud.ResetRequests()
	w.page.follow("kubectl -n edge patch gateway tcp --type=json")
	b := w.balancer("a fourth listener", func(b schema.LoadBalancer) bool { return len(b.Services) == 4 })
	if _, is := listeners(b)[5671]; !is {
		w.t.Errorf("listeners %v, want one for 5671", listeners(b))
	}
	w.page.follow("kubectl -n edge patch gateway tcp --type=json")
	w.balancer("three listeners again", func(b schema.LoadBalancer) bool { return len(b.Services) == 3 })
	id := b.ID
	if made, want := w.changes(), []string{
		fmt.Sprintf("POST /v1/load_balancers/%d/actions/add_service", id),
		fmt.Sprintf("POST /v1/load_balancers/%d/actions/delete_service", id),
	}; !slices.Equal(made, want) {
		w.t.Errorf("a listener that comes and goes cost the changes %q, want %q", made, want)
	}
	svc := w.service()
	for port, nodePort := range before {
		if now := nodePorts(svc)[port]; now != nodePort {
			w.t.Errorf("port %d has node port %d, and had %d", port, now, nodePort)
		}
	}
	if _, left := svc.Annotations["example.com/by"]; left {
		w.t.Error("Contour left an annotation of the Service that the Gateway doesn't have: the page says that it removes it")
	}
}

func (w *world) annotationsFollow() {
	w.t.Helper()
	w.page.follow("kubectl -n edge patch gateway tcp --type=merge")
	b := w.balancer("an IPv6 address", func(b schema.LoadBalancer) bool { return b.PublicNet.IPv6.IP != "" })
	w.eventually("the Gateway shows the public addresses", w.hasAddresses(b.PublicNet.IPv4.IP, b.PublicNet.IPv6.IP))
	w.must(w.change("merge", `{"spec": {"infrastructure": {"annotations": {"load-balancer.hetzner.cloud/hostname": "db.example.com"}}}}`))
	w.eventually("the Gateway shows the name", w.hasAddresses("db.example.com"))
	w.must(w.change("merge", `{"spec": {"infrastructure": {"annotations": {"load-balancer.hetzner.cloud/hostname": null}}}}`))
}

func (w *world) policyFollows() {
	w.t.Helper()
	w.page.follow("kubectl -n projectcontour patch contourdeployment edge")
	w.page.follow("kubectl -n edge annotate gateway tcp")
	ports := nodePorts(w.service())
	want := map[int]string{
		25:   fmt.Sprintf("tcp to %d with the PROXY protocol, checked by tcp on %[1]d every 10 s, 3 times", ports[25]),
		443:  fmt.Sprintf("tcp to %d with the PROXY protocol, checked by tcp on %[1]d every 10 s, 3 times", ports[443]),
		5432: fmt.Sprintf("tcp to %d, checked by http on 10256 every 5 s, 2 times", ports[5432]),
	}
	w.balancer("the checks of policy Cluster", func(b schema.LoadBalancer) bool { return maps.Equal(listeners(b), want) })
	policy := w.service().Spec.ExternalTrafficPolicy
	if policy != corev1.ServiceExternalTrafficPolicyCluster {
		w.t.Errorf("externalTrafficPolicy %s, want Cluster", policy)
	}
}

// expectLimits proves the limits that the page states.
func (w *world) expectLimits() {
	w.t.Helper()
	// Six annotations are set already.
	err := w.change("merge", `{"spec": {"infrastructure": {"annotations": {"example.com/7": "", "example.com/8": "", "example.com/9": ""}}}}`)
	if err == nil || !strings.Contains(err.Error(), "8 items") {
		w.t.Errorf("nine annotations: %v, want them refused as more than 8", err)
	}
	w.must(w.change("json", `[{"op": "add", "path": "/spec/listeners/-", "value": {"name": "dns", "protocol": "UDP", "port": 53}}]`))
	w.eventually("the UDP listener is refused", func(context.Context) (bool, string) {
		said := w.kubectl("-n", namespace, "get", "gateway", gateway,
			"-o", `jsonpath={.status.listeners[?(@.name=="dns")].conditions[?(@.type=="Accepted")].reason}`)
		return said == "UnsupportedProtocol", said
	})
	w.must(w.change("json", `[{"op": "remove", "path": "/spec/listeners/3"},
		{"op": "add", "path": "/spec/addresses", "value": [{"type": "IPAddress", "value": "192.0.2.1"}]}]`))
	w.eventually("the Service is told that the cloud chooses addresses", func(ctx context.Context) (bool, string) {
		list, err := w.Client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=UnsupportedField,involvedObject.name=" + service})
		return err == nil && len(list.Items) > 0, fmt.Sprint(w.service().Spec.LoadBalancerIP, err)
	})
	// A listener and its options are changed together.
	w.must(w.change("json", `[{"op": "remove", "path": "/spec/addresses"},
		{"op": "add", "path": "/spec/listeners/-", "value": {"name": "amqp", "protocol": "TCP", "port": 5671}},
		{"op": "add", "path": "/spec/infrastructure/annotations/underlay.dev~1ports", "value": "{\"5671\": {\"proxyProtocol\": true}}"}]`))
	w.balancer("the new listener alone with the PROXY protocol", func(b schema.LoadBalancer) bool {
		all := listeners(b)
		return len(all) == 4 && strings.Contains(all[5671], "PROXY") && !strings.Contains(all[443], "PROXY")
	})
}

func (w *world) delete() {
	w.t.Helper()
	w.page.follow("kubectl -n edge delete gateway tcp")
	w.eventually("load balancer and Service are gone", func(ctx context.Context) (bool, string) {
		_, err := w.Client.CoreV1().Services(namespace).Get(ctx, service, metav1.GetOptions{})
		n := len(w.Cloud.LoadBalancers())
		return err != nil && n == 0, fmt.Sprintf("%d load balancers, Service: %v", n, err)
	})
}
