package controller_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics"

	cloudnodes "github.com/underlay-ccm/underlay/internal/cloud"
	"github.com/underlay-ccm/underlay/lb"
	"github.com/underlay-ccm/underlay/lb/controller"
)

const finalizer = "service.kubernetes.io/load-balancer-cleanup"

const slowdown = controller.Slowdown

// world is a cluster and a cloud, with the controller between them.
type world struct {
	t        *testing.T
	api      *fake.Clientset
	cloud    *cloud
	events   *record.FakeRecorder
	registry metrics.KubeRegistry
	defaults lb.Defaults
	network  func() int64
	ranges   func() []netip.Prefix
	refresh  func(context.Context) error
	// reachable returns the targets in the server list; nil: not used.
	reachable func(context.Context, time.Time) (map[lb.Target]bool, error)
	stop      func()
	// kill stops the controller in the middle of its work; stop must be called after it.
	kill func()
}

// inWorld runs a test with a running controller, in a bubble with virtual time.
func inWorld(t *testing.T, project *cloud, objects []runtime.Object, test func(w *world)) {
	t.Helper()
	inWorldWith(t, project, objects, func(*lb.Defaults) {}, test)
}

// inWorldWith is inWorld with another configuration.
func inWorldWith(
	t *testing.T, project *cloud, objects []runtime.Object, configure func(*lb.Defaults),
	test func(w *world),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, project, objects)
		configure(&w.defaults)
		w.start()
		defer func() { w.stop() }()
		test(w)
	})
}

func newWorld(t *testing.T, project *cloud, objects []runtime.Object) *world {
	return &world{
		t: t, api: versioned(objects), cloud: project, events: record.NewFakeRecorder(10_000),
		defaults: lb.Defaults{Cluster: "demo", Network: 7, Location: "fsn1", Classless: true, DedicatedRanges: []netip.Prefix{vSwitch}},
	}
}

// versioned is an API server that gives Services a version with each write, by which the controller
// detects that its cache is older than its own write.
func versioned(objects []runtime.Object) *fake.Clientset {
	var last atomic.Int64
	next := func() string { return fmt.Sprint(last.Add(1)) }
	for _, object := range objects {
		if svc, ok := object.(*corev1.Service); ok {
			svc.ResourceVersion = next()
		}
	}
	// The newer fake also tracks managedFields, which no test here needs, and takes half of the
	// tests' time for it.
	api := fake.NewSimpleClientset(objects...)
	put := func(a clienttesting.Action) (bool, runtime.Object, error) {
		if write, ok := a.(interface{ GetObject() runtime.Object }); ok {
			write.GetObject().(*corev1.Service).ResourceVersion = next()
		}
		return false, nil, nil
	}
	api.PrependReactor("create", "services", put)
	api.PrependReactor("update", "services", put)
	api.PrependReactor("patch", "services", func(a clienttesting.Action) (bool, runtime.Object, error) {
		patch, body := a.(clienttesting.PatchActionImpl), map[string]any{}
		must(json.Unmarshal(patch.Patch, &body))
		metadata, _ := body["metadata"].(map[string]any)
		body["metadata"] = with(metadata, map[string]any{"resourceVersion": next()})
		var err error
		patch.Patch, err = json.Marshal(body)
		must(err)
		return clienttesting.ObjectReaction(api.Tracker())(patch)
	})
	return api
}

// start runs a controller until stop is called; a second call is a restart.
func (w *world) start() {
	w.t.Helper()
	w.cloud.open(w.t)
	ctx, cancel := context.WithCancel(w.t.Context())
	w.kill = cancel
	factory := informers.NewSharedInformerFactory(w.api, 0)
	w.registry = metrics.NewKubeRegistry()
	c, err := controller.New(controller.Config{
		Client: w.api.CoreV1(), Services: factory.Core().V1().Services(),
		Nodes:   factory.Core().V1().Nodes(),
		Slices:  factory.Discovery().V1().EndpointSlices(),
		Network: w.network, DedicatedRanges: w.ranges, RefreshRanges: w.refresh, Reachable: w.reachable,
		Doubt: w.doubt, Backend: w.cloud, Defaults: w.defaults, Recorder: w.events, Registry: w.registry,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	factory.Start(ctx.Done())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	w.stop = func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("Run: %v", err)
		}
		factory.Shutdown()
	}
	w.settle()
}

// doubt is the same check that the controller manager makes.
func (w *world) doubt(ctx context.Context) error {
	all, err := w.api.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var nodes []*corev1.Node
	for i := range all.Items {
		nodes = append(nodes, &all.Items[i])
	}
	return (&cloudnodes.Machines{Cloud: w.cloud.servers}).Doubt(ctx, nodes)
}

func (w *world) restart() {
	w.t.Helper()
	w.stop()
	w.start()
}

// settle waits for all effects of previous changes, except retries and regular resyncs.
func (w *world) settle() {
	time.Sleep(2 * time.Second)
	synctest.Wait()
}

// later waits also for retries and the regular resync.
func (w *world) later() {
	time.Sleep(6 * time.Minute)
	synctest.Wait()
}

func (w *world) service(name string) *corev1.Service {
	w.t.Helper()
	svc, err := w.api.CoreV1().Services("default").Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return svc
}

// edit changes a Service as its user would, and waits.
func (w *world) edit(name string, change func(*corev1.Service)) {
	w.t.Helper()
	svc := w.service(name)
	if svc.Annotations == nil {
		svc.Annotations = map[string]string{}
	}
	change(svc)
	if _, err := w.api.CoreV1().Services("default").Update(context.Background(), svc, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	w.settle()
}

func (w *world) create(svc *corev1.Service) {
	w.t.Helper()
	if _, err := w.api.CoreV1().Services("default").Create(context.Background(), svc, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	w.settle()
}

// delete marks the Service as deleted, as the API server does with an object that has finalizers.
func (w *world) delete(name string) {
	w.t.Helper()
	w.edit(name, func(svc *corev1.Service) { svc.DeletionTimestamp = &metav1.Time{Time: time.Now()} })
}

func (w *world) editNode(name string, change func(*corev1.Node)) {
	w.t.Helper()
	node, err := w.api.CoreV1().Nodes().Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	if node.Labels == nil {
		node.Labels = map[string]string{}
	}
	change(node)
	if _, err := w.api.CoreV1().Nodes().Update(context.Background(), node,
		metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	w.settle()
}

// message returns the warnings since the last call.
func (w *world) message() (warnings []string) {
	for {
		select {
		case e := <-w.events.Events:
			if strings.HasPrefix(e, corev1.EventTypeWarning) {
				warnings = append(warnings, e)
			}
		default:
			return warnings
		}
	}
}

// written returns the number of patches of Services since the last call.
func (w *world) written() (count int) {
	for _, a := range w.api.Actions() {
		if a.GetVerb() == "patch" && a.GetResource().Resource == "services" {
			count++
		}
	}
	w.api.ClearActions()
	return count
}

// expect compares the changes sent to the cloud.
func (w *world) expect(what string, want ...string) {
	w.t.Helper()
	_, got := w.cloud.counts()
	if !slices.Equal(got, want) {
		w.t.Errorf("%s: the cloud was told\n  %s\nwant\n  %s", what, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func accepted(svc *corev1.Service) string {
	cond := meta.FindStatusCondition(svc.Status.Conditions, controller.ConditionAccepted)
	if cond == nil {
		return "none"
	}
	return fmt.Sprintf("%s %s", cond.Status, cond.Reason)
}

func ingress(svc *corev1.Service) string {
	var parts []string
	for _, in := range svc.Status.LoadBalancer.Ingress {
		part := in.Hostname + in.IP
		if in.IPMode != nil {
			part += " " + string(*in.IPMode)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}

// service returns a Service of type LoadBalancer with one port.
func service(name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name + "-uid"), Annotations: map[string]string{}},
		Spec: corev1.ServiceSpec{
			Type:                  corev1.ServiceTypeLoadBalancer,
			ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyCluster,
			IPFamilies:            []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol},
			Ports:                 []corev1.ServicePort{{Name: "web", Port: 80, Protocol: corev1.ProtocolTCP, NodePort: 30080}},
		},
	}
}

func node(name string, server int) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}},
		Spec:       corev1.NodeSpec{ProviderID: fmt.Sprintf("hcloud://%d", server)},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}

func nodes(n int) (objects []runtime.Object) {
	for i := range n {
		objects = append(objects, node(fmt.Sprintf("node-%d", i+1), i+1))
	}
	return objects
}
