package directory_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/underlay-ccm/underlay/internal/directory"
	"github.com/underlay-ccm/underlay/internal/directory/directorytest"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/test/testenv/controlplane"
)

// world is an API server with Nodes, and an informer of one machine.
type world struct {
	*testing.T
	client kubernetes.Interface
	nodes  *directory.Nodes

	mu     sync.Mutex
	events []string // names of Nodes that changed
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a control plane, whose programs take minutes to build the first time")
	}
	cp := controlplane.StartT(t, controlplane.Options{WithoutControllerManager: true})
	client, err := kubernetes.NewForConfig(cp.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	if err := cp.Apply(t.Context(), "../../deploy/ccm/directory.yaml"); err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, client: client}
	w.join("self", "10.244.1.0/24", "10.0.0.1")
	w.join("b", "10.244.2.0/24", "10.0.0.2")
	return w
}

func (w *world) join(name, podCIDR, address string) {
	w.Helper()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{kube.ControlPlaneLabel: "", "zone": "a"}},
		Spec:       corev1.NodeSpec{PodCIDR: podCIDR, PodCIDRs: []string{podCIDR}},
	}
	created, err := w.client.CoreV1().Nodes().Create(w.Context(), node, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	w.status(created, func(s *corev1.NodeStatus) {
		s.Addresses = []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: address}, {Type: corev1.NodeHostName, Address: name},
		}
	})
}

func (w *world) status(node *corev1.Node, change func(*corev1.NodeStatus)) {
	w.Helper()
	change(&node.Status)
	if _, err := w.client.CoreV1().Nodes().UpdateStatus(w.Context(), node,
		metav1.UpdateOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) node(name string) *corev1.Node {
	w.Helper()
	node, err := w.client.CoreV1().Nodes().Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return node
}

// watch starts the informer of the machine with the Node self.
func (w *world) watch() {
	w.Helper()
	w.nodes = directory.NewNodes(w.client, "self", func(obj any) (any, error) { return obj, nil })
	note := func(name string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.events = append(w.events, name)
	}
	err := w.nodes.Subscribe(func(_, _ *corev1.Node) { note("self") }, note)
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context()))
	var running sync.WaitGroup
	running.Go(func() { w.nodes.Run(ctx) })
	w.Cleanup(func() { cancel(); running.Wait() })
}

// received counts the changes of a Node.
func (w *world) received(name string) (times int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, event := range w.events {
		if event == name {
			times++
		}
	}
	return times
}

func (w *world) await(what string, done func() bool) {
	w.Helper()
	err := wait.PollUntilContextTimeout(w.Context(), 5*time.Millisecond, time.Minute, true,
		func(context.Context) (bool, error) {
			return done(), nil
		})
	if err != nil {
		w.Fatalf("%s: %v; the informer has %q, ready: %v", what, err, w.listed(), w.nodes.Ready())
	}
}

// listed returns the Nodes in the machine's cache: name, podCIDRs, addresses, readiness.
func (w *world) listed() (all []string) {
	nodes, err := w.nodes.All()
	if err != nil {
		return []string{err.Error()}
	}
	for _, n := range nodes {
		line := []string{n.Name}
		for _, p := range n.PodCIDRs {
			line = append(line, p.String())
		}
		for _, a := range n.InternalIPs {
			line = append(line, a.String())
		}
		if n.Ready {
			line = append(line, "ready")
		}
		if n.ControlPlane {
			line = append(line, "control plane")
		}
		all = append(all, strings.Join(line, " "))
	}
	slices.Sort(all)
	return all
}

func (w *world) awaitListed(want ...string) {
	w.Helper()
	w.await(strings.Join(want, ", "), func() bool { return slices.Equal(w.listed(), want) })
}

func (w *world) entry(name string) *corev1.ConfigMap {
	w.Helper()
	found, err := w.client.CoreV1().ConfigMaps(directory.Namespace).Get(w.Context(), name,
		metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.Fatal(err)
	}
	return found
}

const (
	selfLine = "self 10.244.1.0/24 10.0.0.1 control plane"
	bLine    = "b 10.244.2.0/24 10.0.0.2 control plane"
)

// A machine has the Nodes in its cache when the directory is complete, and then receives their
// changes, but no heartbeats of other Nodes.
func TestADirectoryFollowsNodes(t *testing.T) {
	w := newWorld(t)
	w.watch()
	w.await("its own Node is read", func() bool { return errors.Is(w.nodes.Ready(), directory.ErrIncomplete) })
	if got := w.listed(); got[0] != directory.ErrIncomplete.Error() || w.nodes.Own() == nil {
		t.Errorf("before anything is published there are %q", got)
	}
	directorytest.Publish(t, w.client)
	w.await("complete", func() bool { return w.nodes.Ready() == nil })
	w.awaitListed(bLine, selfLine)
	own, once, err := directory.List(t.Context(), w.client, "self")
	if err != nil || len(own.Status.Addresses) != 2 || len(once) != 2 || once[0].Name != "b" || once[1].Name != "self" {
		t.Errorf("listed once: %v, %v, %v", own, once, err)
	}

	w.join("c", "10.244.3.0/24", "10.0.0.3")
	w.awaitListed(bLine, "c 10.244.3.0/24 10.0.0.3 control plane", selfLine)
	w.status(w.node("c"), func(s *corev1.NodeStatus) {
		s.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	})
	w.awaitListed(bLine, "c 10.244.3.0/24 10.0.0.3 ready control plane", selfLine)

	// Changes are received in order, so a change after a heartbeat shows that the heartbeat was not
	// received.
	before := w.entry("c").ResourceVersion
	w.mu.Lock()
	w.events = nil
	w.mu.Unlock()
	w.status(w.node("c"), func(s *corev1.NodeStatus) { s.Conditions[0].LastHeartbeatTime = metav1.Now() })
	if err := w.client.CoreV1().Nodes().Delete(t.Context(), "b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.awaitListed("c 10.244.3.0/24 10.0.0.3 ready control plane", selfLine)
	if after := w.entry("c").ResourceVersion; after != before {
		t.Error("a heartbeat was published")
	}
	w.await("the deletion is received", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return slices.Equal(w.events, []string{"b"})
	})
}

// Changes of the directory by other clients are undone.
func TestADirectoryIsCorrected(t *testing.T) {
	w := newWorld(t)
	directorytest.Publish(t, w.client)
	w.watch()
	w.awaitListed(bLine, selfLine)
	entries := w.client.CoreV1().ConfigMaps(directory.Namespace)
	wrong := w.entry("b")
	wrong.Data = map[string]string{"node": `{"podCIDRs": ["10.244.9.0/24"]}`}
	if _, err := entries.Update(t.Context(), wrong, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	stray := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "stray", Labels: wrong.Labels}}
	if _, err := entries.Create(t.Context(), stray, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := entries.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name=" + directory.Complete}); err != nil {
		t.Fatal(err)
	}
	own := w.entry("self")
	own.Labels = nil
	if _, err := entries.Update(t.Context(), own, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	// As kube-controller-manager adds one to every namespace.
	others := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kube-root-ca.crt"}}
	if _, err := entries.Create(t.Context(), others, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.await("it is as it was", func() bool {
		b, self := w.entry("b"), w.entry("self")
		return w.entry("stray") == nil && self != nil && len(self.Labels) > 0 && w.entry(directory.Complete) != nil && b != nil && strings.Contains(b.Data["node"], "10.244.2.0/24")
	})
	w.awaitListed(bLine, selfLine)
	if w.entry(others.Name) == nil {
		t.Error("a ConfigMap that is not of the directory was deleted")
	}
}

// A leader whose cache of Nodes is older than the directory deletes no entry of an existing Node.
func TestAnEntryIsNotDeletedByAnOldCache(t *testing.T) {
	w := newWorld(t)
	w.join("new", "10.244.3.0/24", "10.0.0.3")
	mark := map[string]string{"underlay.dev/directory": ""}
	young := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "new", Labels: mark}}
	entries := w.client.CoreV1().ConfigMaps(directory.Namespace)
	if _, err := entries.Create(t.Context(), young, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	gone := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "gone", Labels: mark}}
	if _, err := entries.Create(t.Context(), gone, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	old := informers.NewSharedInformerFactoryWithOptions(w.client, 0,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = "metadata.name!=new"
		}))
	p, err := directory.NewPublisher(w.client, old.Core().V1().Nodes())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	old.StartWithContext(ctx)
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	w.watch()
	w.await("the entry of no Node is deleted", func() bool { return w.entry("gone") == nil })
	w.await("complete", func() bool { return w.entry(directory.Complete) != nil })
	if w.entry("new") == nil {
		t.Error("the entry of a Node that exists is deleted")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	old.Shutdown()
}

// While a client deletes all entries, and the publisher writes them again, a machine keeps all
// Nodes at every moment.
func TestADeletedDirectoryIsWrittenAgain(t *testing.T) {
	w := newWorld(t)
	const nodes = 40
	for i := range nodes - 2 {
		w.join(fmt.Sprint("node-", i), fmt.Sprintf("10.244.%d.0/24", i+10), fmt.Sprintf("10.0.0.%d", i+10))
	}
	directorytest.Publish(t, w.client)
	w.watch()
	w.await("complete", func() bool { return len(w.listed()) == nodes })
	entries := w.client.CoreV1().ConfigMaps(directory.Namespace)
	err := entries.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.await("complete again", func() bool {
		if got := w.listed(); len(got) != nodes {
			t.Fatalf("%d of %d Nodes are listed", len(got), nodes)
		}
		return w.nodes.Ready() == nil && w.received(directory.Complete) >= 3 // added, deleted and added
	})
	// So that a handler which waits for the last entry is called after it.
	w.await("the last event is that it is complete", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.events[len(w.events)-1] == directory.Complete
	})
}

// If the whole directory is deleted and not written again, a machine keeps its Nodes, and is not
// ready.
func TestADeletedDirectoryChangesNothing(t *testing.T) {
	w := newWorld(t)
	t.Run("publish", func(t *testing.T) {
		directorytest.Publish(t, w.client)
		w.watch()
		w.awaitListed(bLine, selfLine)
	})
	err := w.client.CoreV1().ConfigMaps(directory.Namespace).DeleteCollection(t.Context(),
		metav1.DeleteOptions{}, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.await("the deletions are received", func() bool { return w.received("b") >= 2 && w.received(directory.Complete) >= 2 })
	w.awaitListed(bLine, selfLine)
	if err := w.nodes.Ready(); !errors.Is(err, directory.ErrIncomplete) {
		t.Errorf("ready: %v", err)
	}
}
