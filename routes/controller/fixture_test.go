package controller_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/routes"
	"github.com/underlay-ccm/underlay/routes/controller"
)

// fixture is a cluster, a cloud project, and the controller between them, within a synctest bubble.
type fixture struct {
	t       *testing.T
	client  *fake.Clientset
	table   *table
	servers *servers
	events  *record.FakeRecorder
	cfg     controller.Config
	refuse  int // the number of condition patches to reject first
	// registrations is the number of Nodes that registered again.
	registrations int
}

// apiServer is client-go's fake with resource versions for patched objects, by which the controller
// detects a lagging cache.
func (w *fixture) apiServer() *fake.Clientset {
	client := fake.NewClientset()
	patch := clienttesting.ObjectReaction(client.Tracker())
	var version atomic.Int64
	version.Store(1000)
	client.PrependReactor("patch", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if w.refuse > 0 {
			w.refuse--
			return true, nil, errBroken
		}
		handled, obj, err := patch(action)
		if err != nil {
			return handled, obj, err
		}
		node := obj.(*corev1.Node).DeepCopy()
		node.ResourceVersion = fmt.Sprint(version.Add(1))
		return true, node, client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), node, "")
	})
	return client
}

// withFixture runs a scenario on virtual time. The controller runs between start and the returned
// stop.
func withFixture(t *testing.T, scenario func(*fixture)) {
	synctest.Test(t, func(t *testing.T) {
		w := &fixture{
			t:       t,
			table:   &table{limit: 100},
			servers: &servers{now: project{of: map[string]netip.Addr{}, detached: map[string]bool{}}},
			events:  record.NewFakeRecorder(1000),
			cfg: controller.Config{
				Ranges: []routes.Range{{Prefix: netip.MustParsePrefix("10.244.0.0/16"), NodeBits: 24}},
				Limit:  100, MaxDeletions: 25, Period: time.Minute, Lease: kube.DefaultLease,
			},
		}
		w.client = w.apiServer()
		scenario(w)
	})
}

func (w *fixture) start() (stop func()) {
	w.t.Helper()
	ended, cancel := w.run()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("the controller stopped with %v", err)
		}
	}
}

// runUntilItEnds returns the error with which the controller ends by itself.
func (w *fixture) runUntilItEnds(limit time.Duration) error {
	w.t.Helper()
	ended, cancel := w.run()
	defer cancel()
	select {
	case err := <-ended:
		return err
	case <-time.After(limit):
		cancel()
		return <-ended
	}
}

func (w *fixture) run() (<-chan error, context.CancelFunc) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	factory := informers.NewSharedInformerFactory(w.client, 0)
	cfg := w.cfg
	cfg.Client = w.client
	cfg.Nodes = factory.Core().V1().Nodes()
	cfg.Table = w.table
	cfg.Gateways = w.servers
	cfg.Recorder, cfg.Registry = w.events, metrics.NewKubeRegistry()
	c, err := controller.New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	factory.Start(ctx.Done())
	ended := make(chan error, 1)
	go func() {
		err := c.Run(ctx)
		cancel()
		factory.Shutdown()
		ended <- err
	}()
	return ended, cancel
}

func (w *fixture) join(name, podCIDR string) {
	w.t.Helper()
	if podCIDR == "" {
		w.joinWith(name)
	} else {
		w.joinWith(name, podCIDR, "fd00::/64")
	}
}

func (w *fixture) joinWith(name string, podCIDRs ...string) {
	w.t.Helper()
	w.create(types.UID("uid-"+name), name, podCIDRs...)
}

func (w *fixture) create(uid types.UID, name string, podCIDRs ...string) {
	w.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid, ResourceVersion: "1", CreationTimestamp: metav1.Now()}}
	if len(podCIDRs) > 0 {
		node.Spec.PodCIDR, node.Spec.PodCIDRs = podCIDRs[0], podCIDRs
	}
	if _, err := w.client.CoreV1().Nodes().Create(w.t.Context(), node,
		metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// nodeName returns the name of the i-th Node of joinMany.
func nodeName(i int) string { return fmt.Sprint("n", i) }

// joinMany lets count Nodes join, numbered from first on, with their servers.
func (w *fixture) joinMany(first, count int) {
	w.t.Helper()
	for i := first; i < first+count; i++ {
		w.servers.attach(nodeName(i), w.address(i))
		w.join(nodeName(i), w.podCIDR(i))
	}
}

func (w *fixture) address(i int) string { return fmt.Sprintf("10.0.0.%d", i+2) }

func (w *fixture) podCIDR(i int) string { return fmt.Sprintf("10.244.%d.0/24", i) }

// registerAnew lets a Node that left join again, as another object of the same name.
func (w *fixture) registerAnew(name, podCIDR string) {
	w.t.Helper()
	w.registrations++
	w.create(types.UID(fmt.Sprint("uid-", name, "-", w.registrations)), name, podCIDR, "fd00::/64")
}

func (w *fixture) leave(name string) {
	w.t.Helper()
	if err := w.client.CoreV1().Nodes().Delete(w.t.Context(), name,
		metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// condition returns "status reason" of a Node's NetworkUnavailable, or "none".
func (w *fixture) condition(name string) string {
	w.t.Helper()
	node, err := w.client.CoreV1().Nodes().Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	c := kube.Condition(node, corev1.NodeNetworkUnavailable)
	if c == nil {
		return "none"
	}
	return fmt.Sprintf("%s %s", c.Status, c.Reason)
}

func (w *fixture) expectCondition(name, want string) {
	w.t.Helper()
	if got := w.condition(name); got != want {
		w.t.Errorf("node %s: NetworkUnavailable %q, want %q", name, got, want)
	}
}

func (w *fixture) expectTable(want ...string) {
	w.t.Helper()
	if got := w.table.String(); got != strings.Join(want, "\n") {
		w.t.Errorf("the table holds\n%s\nwant\n%s\nwrites: %q", got, strings.Join(want, "\n"), w.table.log())
	}
}

func (w *fixture) conditionWrites() int {
	n := 0
	for _, a := range w.client.Actions() {
		if a.Matches("patch", "nodes/status") || a.Matches("patch", "nodes") {
			n++
		}
	}
	return n
}

func (w *fixture) drainEvents() []string {
	var out []string
	for {
		select {
		case e := <-w.events.Events:
			out = append(out, strings.Join(strings.Fields(e)[:2], " "))
		default:
			slices.Sort(out)
			return out
		}
	}
}

// rest advances virtual time, and waits until all goroutines are idle.
func rest(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

var (
	errBroken = errors.New("connection reset")
	errLate   = errors.New("too late")
)

// wrote adds routes that this cluster wrote and recorded earlier.
func (w *fixture) wrote(rs ...routes.Route) {
	w.t.Helper()
	w.table.routes = append(w.table.routes, rs...)
	maps := w.client.CoreV1().ConfigMaps("kube-system")
	stored, err := maps.Get(w.t.Context(), controller.RecordName, metav1.GetOptions{})
	record := routes.Record{}
	if err == nil {
		if record, err = routes.ParseRecord(stored.Data); err != nil {
			w.t.Fatal(err)
		}
	}
	for _, r := range rs {
		record[r] = true
	}
	changed := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: controller.RecordName, Namespace: "kube-system"}, Data: record.Text()}
	if stored.Name == "" {
		_, err = maps.Create(w.t.Context(), changed, metav1.CreateOptions{})
	} else {
		_, err = maps.Update(w.t.Context(), changed, metav1.UpdateOptions{})
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// recorded returns the record as text.
func (w *fixture) recorded() map[string]string {
	w.t.Helper()
	stored, err := w.client.CoreV1().ConfigMaps("kube-system").Get(w.t.Context(), controller.RecordName, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return stored.Data
}

func (w *fixture) recordWrites() int {
	n := 0
	for _, a := range w.client.Actions() {
		if a.Matches("create", "configmaps") || a.Matches("update", "configmaps") {
			n++
		}
	}
	return n
}

func (w *fixture) joinControlPlane(name, podCIDR string) {
	w.t.Helper()
	w.join(name, podCIDR)
	node, err := w.client.CoreV1().Nodes().Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	node.Labels = map[string]string{"node-role.kubernetes.io/control-plane": ""}
	if _, err := w.client.CoreV1().Nodes().Update(w.t.Context(), node,
		metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}
