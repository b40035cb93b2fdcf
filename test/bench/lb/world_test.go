// Package lb_test counts the cost of load balancers: requests to the cloud, asserted, in comparison
// with those of the Hetzner cloud controller manager, and time and memory, printed. The controller
// and the client are the real ones; the cloud is the simulator, the API server client-go's fake.
// Run it with `make bench-lb`.
package lb_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/cloud"
	"github.com/underlay-ccm/underlay/internal/hetzner"
	"github.com/underlay-ccm/underlay/lb"
	"github.com/underlay-ccm/underlay/lb/controller"
)

// world is a cluster and a cloud, with the real controller and client between them.
type world struct {
	t        testing.TB
	ctx      context.Context
	sim      *hcloudsim.Simulator
	api      *fake.Clientset
	client   *hetzner.Client
	network  *hetzner.Network
	servers  *hetzner.Servers
	machines cloud.Machines
	seeded   int64 // the network's ID
	defaults lb.Defaults
	stop     func()
}

func newWorld(t testing.TB, options hcloudsim.Options) *world {
	t.Helper()
	options.Token, options.RateLimit, options.AttachmentLimit = "bench", hcloudsim.Unlimited, hcloudsim.Unlimited
	w := &world{
		t: t, ctx: klog.NewContext(t.Context(), logr.Discard()), sim: hcloudsim.New(options),
		api: fake.NewClientset(),
	}
	seeded, err := w.sim.CreateNetwork(hcloudsim.NetworkSeed{
		Name: "bench", IPRange: netip.MustParsePrefix("10.0.0.0/8"),
		Subnets: []hcloudsim.SubnetSeed{{IPRange: netip.MustParsePrefix("10.0.0.0/16")}},
	})
	w.must(err)
	w.seeded = seeded.ID
	w.client, err = hetzner.New(hetzner.Options{
		Endpoint: "http://cloud.invalid/v1", Version: "bench", Registry: metrics.NewKubeRegistry(), Transport: w.sim.Transport(),
		Token: func() (string, error) { return "bench", nil },
	})
	w.must(err)
	w.network, err = w.client.Network(w.ctx, "bench")
	w.must(err)
	w.servers = w.client.Servers(seeded.ID)
	w.machines.Cloud = w.servers
	w.defaults = lb.Defaults{Cluster: "bench", Network: seeded.ID, Location: "nbg1", Type: "lb21", UsePrivateIP: true, Classless: true}
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// start runs a controller until stop is called; a second call is a restart.
func (w *world) start() {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.ctx)
	factory := informers.NewSharedInformerFactory(w.api, 0)
	c, err := controller.New(controller.Config{
		Client: w.api.CoreV1(), Services: factory.Core().V1().Services(),
		Nodes:  factory.Core().V1().Nodes(),
		Slices: factory.Discovery().V1().EndpointSlices(), Backend: w.client.LoadBalancers(),
		Defaults: w.defaults,
		Recorder: record.NewFakeRecorder(100_000), Registry: metrics.NewKubeRegistry(), Workers: 5,
		Reachable: w.reachable,
		Doubt: func(ctx context.Context) error {
			nodes, err := factory.Core().V1().Nodes().Lister().List(labels.Everything())
			w.must(err)
			return w.machines.Doubt(ctx, nodes)
		},
	})
	w.must(err)
	factory.Start(ctx.Done())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	w.stop = func() {
		cancel()
		w.must(<-done)
		factory.Shutdown()
	}
}

// reachable returns the server list's result, from the cache that all controllers share.
func (w *world) reachable(ctx context.Context, notBefore time.Time) (map[lb.Target]bool, error) {
	servers, err := w.servers.List(ctx, notBefore)
	reachable := map[lb.Target]bool{}
	for _, s := range servers {
		reachable[lb.Target{Server: s.ID, Private: true}] = s.PrivateIP.IsValid()
	}
	return reachable, err
}

// addNode creates a server and its Node.
func (w *world) addNode(name string) {
	w.t.Helper()
	server, err := w.sim.CreateServer(hcloudsim.ServerSeed{Name: name, Network: w.seeded})
	w.must(err)
	_, err = w.api.CoreV1().Nodes().Create(w.ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: fmt.Sprint("hcloud://", server.ID)},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}, metav1.CreateOptions{})
	w.must(err)
}

// addService creates a Service with two ports.
func (w *world) addService(name string) {
	w.t.Helper()
	_, err := w.api.CoreV1().Services("default").Create(w.ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-of-" + name)},
		Spec: corev1.ServiceSpec{
			Type:                  corev1.ServiceTypeLoadBalancer,
			ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyCluster,
			Ports: []corev1.ServicePort{
				{Port: 80, Protocol: "TCP", NodePort: 30080}, {Port: 443, Protocol: "TCP", NodePort: 30443},
			},
		},
	}, metav1.CreateOptions{})
	w.must(err)
}

// addSharer creates a Service that shares a load balancer, with two ports of its own.
func (w *world) addSharer(name string, port int32) {
	w.t.Helper()
	_, err := w.api.CoreV1().Services("default").Create(w.ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID("uid-of-" + name),
			Annotations: map[string]string{lb.AnnotationShared: "edge"},
		},
		Spec: corev1.ServiceSpec{
			Type:                  corev1.ServiceTypeLoadBalancer,
			ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyCluster,
			Ports: []corev1.ServicePort{
				{Name: "a", Port: port, Protocol: "TCP", NodePort: 30000 + port},
				{Name: "b", Port: port + 100, Protocol: "TCP", NodePort: 30100 + port},
			},
		},
	}, metav1.CreateOptions{})
	w.must(err)
}

func (w *world) edit(name string, change func(*corev1.Service)) {
	w.t.Helper()
	svc, err := w.api.CoreV1().Services("default").Get(w.ctx, name, metav1.GetOptions{})
	w.must(err)
	change(svc)
	_, err = w.api.CoreV1().Services("default").Update(w.ctx, svc, metav1.UpdateOptions{})
	w.must(err)
}

// cost counts the requests to the cloud.
type cost struct{ reads, writes, polls int }

func (c cost) all() int { return c.reads + c.writes + c.polls }

// spent counts the requests since the last call.
func (w *world) spent() (c cost) {
	for _, r := range w.sim.Requests() {
		switch {
		case r.Method != http.MethodGet:
			c.writes++
		case strings.Contains(r.Path, "/actions"):
			c.polls++
		default:
			c.reads++
		}
	}
	w.sim.ResetRequests()
	return c
}

// realistic times of the cloud, those of the peer's measurement.
func realistic() hcloudsim.Options {
	return hcloudsim.Options{ActionTime: 300 * time.Millisecond, Latency: 20 * time.Millisecond}
}
