package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/policy"
)

// filter is a table that keeps the ruleset in memory.
type filter struct {
	mu      sync.Mutex
	err     error
	applied int
	rules   *policy.Ruleset
	drops   map[*policy.Chain]uint64
}

func (f *filter) Apply(_ context.Context, want *policy.Ruleset) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.applied++
	if f.err != nil {
		return nil, f.err
	}
	f.rules = want
	return nil, nil
}

func (f *filter) Watch(ctx context.Context, _ func()) error {
	<-ctx.Done()
	return nil
}

func (f *filter) Drops(context.Context) (map[*policy.Chain]uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return nil, f.err
	}
	return f.drops, nil
}

func (f *filter) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

// is reports whether the table enforces something, for these addresses of pods.
func (f *filter) is(enforces bool, pods ...string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.applied == 0 || (f.rules != nil) != enforces {
		return false
	}
	var has []string
	if f.rules != nil {
		for a := range f.rules.Pods {
			has = append(has, a.String())
		}
	}
	slices.Sort(has)
	return slices.Equal(has, pods)
}

// nodes are two, of which self is the machine's own.
type nodes struct{}

func (nodes) All() ([]*kube.Node, error) {
	var all []*kube.Node
	for i, name := range []string{"self", "other"} {
		all = append(all, &kube.Node{Name: name, PodCIDRs: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.0.%d.0/24", i))}})
	}
	return all, nil
}

func (nodes) Subscribe(func(old, now *corev1.Node), func(string)) error { return nil }

type fixture struct {
	t      *testing.T
	client *fake.Clientset
	table  *filter
	agent  *Agent
}

func newFixture(t *testing.T, off bool, objects ...runtime.Object) *fixture {
	t.Helper()
	f := &fixture{t: t, client: fake.NewClientset(objects...), table: &filter{}}
	return f.with(off)
}

func (f *fixture) with(off bool) *fixture {
	f.t.Helper()
	var err error
	f.agent, err = New(Config{
		Client: f.client, Node: "self", Nodes: nodes{}, Table: f.table, Registry: metrics.NewKubeRegistry(), Off: off,
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return f
}

func (f *fixture) run() {
	ctx, cancel := context.WithCancel(f.t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); f.agent.Run(ctx) }()
	f.t.Cleanup(func() { cancel(); <-ended })
}

func (f *fixture) await(what string, holds func() bool) {
	f.t.Helper()
	err := wait.PollUntilContextTimeout(f.t.Context(), time.Millisecond, 20*time.Second, true,
		func(context.Context) (bool, error) { return holds(), nil })
	if err != nil {
		f.t.Fatalf("never: %s; enforced: %v", what, f.agent.Enforced())
	}
}

// read reports whether objects of a resource were listed or watched.
func (f *fixture) read(resource string) bool {
	return slices.ContainsFunc(f.client.Actions(), func(a clienttesting.Action) bool {
		return a.GetResource().Resource == resource
	})
}

func podOn(node, name, ip string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{NodeName: node},
		Status:     corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: ip}}},
	}
}

func deny() *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "deny"}}
}

func TestPodsAreWatchedWhileThereIsAPolicy(t *testing.T) {
	f := newFixture(t, false, podOn("self", "web", "10.0.0.2"), podOn("other", "db", "10.0.1.2"))
	if err := f.agent.Enforced(); err == nil {
		t.Error("policies are enforced before they are read")
	}
	f.run()
	f.await("no table without policies", func() bool { return f.table.is(false) && f.agent.Enforced() == nil })
	if f.read("pods") || f.read("namespaces") {
		t.Error("pods or namespaces were read without a policy")
	}
	policies := f.client.NetworkingV1().NetworkPolicies("shop")
	for range 2 {
		if _, err := policies.Create(t.Context(), deny(), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		f.await("a table with the node's pod", func() bool { return f.table.is(true, "10.0.0.2") })
		if err := policies.Delete(t.Context(), "deny", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		f.await("no table without the policy", func() bool { return f.table.is(false) })
	}
}

func TestPodsComeAndGo(t *testing.T) {
	f := newFixture(t, false, deny())
	f.run()
	f.await("a table without pods", func() bool { return f.table.is(true) && f.agent.Enforced() == nil })
	pods := f.client.CoreV1().Pods("shop")
	if _, err := pods.Create(t.Context(), podOn("self", "web", "10.0.0.2"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	f.await("the pod", func() bool { return f.table.is(true, "10.0.0.2") })
	ended := podOn("self", "web", "10.0.0.2")
	ended.Status.Phase = corev1.PodSucceeded
	if _, err := pods.Update(t.Context(), ended, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	f.await("no pod after its end", func() bool { return f.table.is(true) })
}

func TestOffRemovesTheTableAndReadsNothing(t *testing.T) {
	f := newFixture(t, true, deny())
	f.run()
	f.await("no table", func() bool { return f.table.is(false) && f.agent.Enforced() == nil })
	if f.read("networkpolicies") || f.read("pods") {
		t.Errorf("something was read: %v", f.client.Actions())
	}
}

// TestTheTableStaysWhilePodsAreUnknown: pods can't be listed at first.
func TestTheTableStaysWhilePodsAreUnknown(t *testing.T) {
	f := newFixture(t, false, deny(), podOn("self", "web", "10.0.0.2"))
	var refusing sync.Mutex
	refused, refuse := 0, true
	answer := func(clienttesting.Action) (bool, runtime.Object, error) {
		refusing.Lock()
		defer refusing.Unlock()
		refused++
		return refuse, nil, errors.New("not now")
	}
	f.client.PrependReactor("list", "pods", answer)
	f.run()
	f.await("pods are asked for", func() bool { refusing.Lock(); defer refusing.Unlock(); return refused > 0 })
	if err := f.agent.Enforced(); err == nil || !strings.Contains(err.Error(), "waiting for the") || f.table.applied > 0 {
		t.Errorf("enforced: %v after %d changes of the table", err, f.table.applied)
	}
	select {
	case <-f.agent.Decided():
		t.Error("it is decided that policies are enforced")
	default:
	}
	refusing.Lock()
	refuse = false
	refusing.Unlock()
	f.await("the pod", func() bool { return f.table.is(true, "10.0.0.2") && f.agent.Enforced() == nil })
}

func TestFailuresAreShownAndRetried(t *testing.T) {
	f := newFixture(t, false, deny())
	broken := errors.New("broken")
	f.table.fail(broken)
	var mu sync.Mutex
	changes := 0
	f.agent.Subscribe(func() { mu.Lock(); defer mu.Unlock(); changes++ })
	f.run()
	f.await("the failure", func() bool { return errors.Is(f.agent.Enforced(), broken) })
	<-f.agent.Decided()
	f.table.fail(nil)
	f.await("recovery", func() bool { return f.agent.Enforced() == nil })
	f.await("a notice", func() bool { mu.Lock(); defer mu.Unlock(); return changes == 1 })
}
