package vswitch_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/vswitch"
)

var errBroken = errors.New("broken")

// robot is an account with vSwitches.
type robot struct {
	mu        sync.Mutex
	members   map[int64]map[int64]vswitch.Status // by the vSwitch's ID
	err       error
	slow      time.Duration
	requested int
}

func (r *robot) Members(ctx context.Context, id int64) (map[int64]vswitch.Status, error) {
	r.mu.Lock()
	r.requested++
	members, err, slow := maps.Clone(r.members[id]), r.err, r.slow
	r.mu.Unlock()
	if err == nil && members == nil {
		err = fmt.Errorf("no vSwitch %d", id)
	}
	select {
	case <-time.After(slow):
		return members, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// requests counts those since the last call.
func (r *robot) requests() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.requested = 0 }()
	return r.requested
}

// set makes servers members, by number.
func (r *robot) set(s vswitch.Status, numbers ...int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range numbers {
		r.members[id][n] = s
	}
}

func (r *robot) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

const id = 4321

// fixture is a cluster and an account, inside a synctest bubble.
type fixture struct {
	t        *testing.T
	client   *fake.Clientset
	robot    *robot
	events   *record.FakeRecorder
	registry metrics.KubeRegistry
	vSwitch  atomic.Int64
	refuse   atomic.Int32 // so many patches fail first
	writes   atomic.Int32
	lags     atomic.Bool // the cache receives no change of Nodes
}

func withFixture(t *testing.T, scenario func(*fixture)) {
	synctest.Test(t, func(t *testing.T) {
		w := &fixture{
			t: t, client: fake.NewClientset(), events: record.NewFakeRecorder(1000),
			robot: &robot{members: map[int64]map[int64]vswitch.Status{id: {}}},
		}
		w.vSwitch.Store(id)
		patch := clienttesting.ObjectReaction(w.client.Tracker())
		var version atomic.Int64
		version.Store(1000)
		// client-go's fake keeps no resource versions of patched objects.
		w.client.PrependReactor("patch", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if w.refuse.Add(-1) >= 0 {
				return true, nil, errBroken
			}
			w.writes.Add(1)
			handled, obj, err := patch(action)
			if err != nil {
				return handled, obj, err
			}
			node := obj.(*corev1.Node).DeepCopy()
			node.ResourceVersion = fmt.Sprint(version.Add(1))
			return true, node, w.client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), node, "")
		})
		w.client.PrependWatchReactor("nodes", func(clienttesting.Action) (bool, watch.Interface, error) {
			all, err := w.client.Tracker().Watch(corev1.SchemeGroupVersion.WithResource("nodes"), "")
			if err != nil {
				return true, nil, err
			}
			return true, watch.Filter(all, func(e watch.Event) (watch.Event, bool) {
				return e, e.Type != watch.Modified || !w.lags.Load()
			}), nil
		})
		scenario(w)
	})
}

func (w *fixture) join(name, providerID string, podCIDRs ...string) {
	w.t.Helper()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + "-uid"), ResourceVersion: "1"},
		Spec:       corev1.NodeSpec{ProviderID: providerID, PodCIDRs: podCIDRs},
	}
	if len(podCIDRs) > 0 {
		node.Spec.PodCIDR = podCIDRs[0]
	}
	if _, err := w.client.CoreV1().Nodes().Create(w.t.Context(), node,
		metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// start runs a new process until stop.
func (w *fixture) start() (stop func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	factory := informers.NewSharedInformerFactory(w.client, 0)
	w.registry = metrics.NewKubeRegistry()
	c, err := vswitch.New(vswitch.Config{
		Client: w.client, Nodes: factory.Core().V1().Nodes(), Members: w.robot, VSwitch: w.vSwitch.Load,
		Holds:    netip.MustParsePrefix("10.1.128.0/17").Overlaps,
		Recorder: w.events, Registry: w.registry,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	factory.Start(ctx.Done())
	return func() {
		w.t.Helper()
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("the controller stopped with %v", err)
		}
		factory.Shutdown()
	}
}

// rest lets virtual time pass.
func rest(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// expect compares the conditions with the wanted ones: "bm-1=False VSwitchMemberFailed".
func (w *fixture) expect(want ...string) {
	w.t.Helper()
	nodes, err := w.client.CoreV1().Nodes().List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	var got []string
	for i := range nodes.Items {
		if c := kube.Condition(&nodes.Items[i], vswitch.MemberCondition); c != nil {
			got = append(got, fmt.Sprintf("%s=%s %s", nodes.Items[i].Name, c.Status, c.Reason))
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		w.t.Errorf("conditions %q, want %q", got, want)
	}
}

// expectEvents compares the Events since the last call: type and reason.
func (w *fixture) expectEvents(want ...string) {
	w.t.Helper()
	var got []string
	for {
		select {
		case e := <-w.events.Events:
			kind, rest, _ := strings.Cut(e, " ")
			reason, _, _ := strings.Cut(rest, " ")
			got = append(got, kind+" "+reason)
			continue
		default:
		}
		break
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		w.t.Errorf("events %q, want %q", got, want)
	}
}

func (w *fixture) expectMetric(failed, missing float64) {
	w.t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		if f.GetName() == "underlay_vswitch_unreached_nodes" {
			for _, m := range f.GetMetric() {
				got[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
			}
		}
	}
	if want := map[string]float64{"failed": failed, "missing": missing}; !maps.Equal(got, want) {
		w.t.Errorf("metric %v, want %v", got, want)
	}
}

// Each Node gets a message about the fault of its server, once, and another one when it is
// repaired. The idle cost is twelve requests an hour and no write, however many Nodes there are.
func TestNodesAreNotified(t *testing.T) {
	withFixture(t, func(w *fixture) {
		w.join("cloud", "hcloud://1", "10.244.1.0/24")
		w.join("overlay", "hrobot://9", "10.244.2.0/24")
		w.join("new", "hrobot://8")
		for n := range 50 {
			w.join(fmt.Sprintf("bm-%02d", n), fmt.Sprint("hrobot://", 100+n), fmt.Sprintf("10.1.%d.0/24", 128+n), "2001:db8::/80")
			w.robot.set(vswitch.Ready, int64(100+n))
		}
		w.join("older", "hcloud://bm-200", "10.1.240.0/24")
		w.robot.set(vswitch.Failed, 100, 200)
		w.robot.set(vswitch.InProcess, 101)
		delete(w.robot.members[id], 102)
		defer w.start()()
		rest(time.Minute)
		reported := []string{"bm-00=False VSwitchMemberFailed", "bm-02=False VSwitchMemberMissing", "older=False VSwitchMemberFailed"}
		w.expect(reported...)
		w.expectEvents("Warning VSwitchMemberFailed", "Warning VSwitchMemberFailed", "Warning VSwitchMemberMissing")
		w.expectMetric(2, 1)
		w.robot.requests()
		w.writes.Store(0)
		rest(time.Hour)
		if requested, wrote := w.robot.requests(), w.writes.Load(); requested != 12 || wrote != 0 {
			t.Errorf("%d requests and %d writes in an hour, want 12 and 0", requested, wrote)
		}
		w.expect(reported...)
		w.expectEvents()

		// A member in process is no failure, and causes a message only after a failure.
		w.robot.set(vswitch.InProcess, 100, 102, 103)
		rest(5 * time.Minute)
		w.expect("bm-00=Unknown VSwitchMemberInProcess", "bm-02=Unknown VSwitchMemberInProcess", "older=False VSwitchMemberFailed")
		w.expectEvents()
		rest(10 * time.Second)
		w.expectMetric(1, 0)
		w.robot.set(vswitch.Ready, 100, 102, 200)
		w.robot.set(vswitch.Failed, 103)
		rest(5 * time.Minute)
		w.expect("bm-00=True VSwitchMemberReady", "bm-02=True VSwitchMemberReady", "bm-03=False VSwitchMemberFailed", "older=True VSwitchMemberReady")
		w.expectEvents("Normal VSwitchMemberReady", "Normal VSwitchMemberReady", "Normal VSwitchMemberReady", "Warning VSwitchMemberFailed")
		// The fault may change.
		delete(w.robot.members[id], 103)
		rest(5 * time.Minute)
		w.expectEvents("Warning VSwitchMemberMissing")
		rest(10 * time.Second)
		w.expectMetric(0, 1)
	})
}

// Unknown states change nothing, for this leader and for its successors.
func TestHalfKnowledgeChangesNothing(t *testing.T) {
	withFixture(t, func(w *fixture) {
		w.join("bm-1", "hrobot://101", "10.1.129.0/24")
		w.join("bm-2", "hrobot://102", "10.1.130.0/24")
		w.robot.set(vswitch.Failed, 101)
		w.robot.set(vswitch.Ready, 102)
		stop := w.start()
		rest(time.Minute)
		w.expectEvents("Warning VSwitchMemberFailed")
		reported := "bm-1=False VSwitchMemberFailed"

		w.robot.fail(errBroken)
		w.robot.members[id] = map[int64]vswitch.Status{}
		w.join("bm-3", "hrobot://103", "10.1.131.0/24")
		w.robot.requests()
		rest(time.Hour)
		if n := w.robot.requests(); n > 13 {
			t.Errorf("%d requests in an hour of an outage, want no more than at rest", n)
		}
		w.expect(reported)
		w.expectMetric(1, 0)
		stop()
		defer w.start()()
		rest(time.Hour)
		w.expect(reported)
		w.expectMetric(1, 0)
		w.expectEvents()

		// Neither do a network that isn't coupled, or a vSwitch that Robot doesn't have.
		w.robot.fail(nil)
		w.vSwitch.Store(0)
		w.robot.requests()
		rest(time.Hour)
		if n := w.robot.requests(); n != 0 {
			t.Errorf("%d requests about no vSwitch", n)
		}
		w.vSwitch.Store(1)
		rest(time.Hour)
		w.expect(reported)
		w.expectEvents()

		w.robot.set(vswitch.Failed, 101)
		w.robot.set(vswitch.Ready, 102, 103)
		w.vSwitch.Store(id)
		rest(5 * time.Minute)
		w.expect(reported)
		w.expectEvents()
	})
}

// A new leader repeats no message, and corrects premature ones of its predecessor.
func TestANewLeader(t *testing.T) {
	withFixture(t, func(w *fixture) {
		w.join("bm-1", "hrobot://101", "10.1.129.0/24")
		w.join("bm-2", "hrobot://102", "10.1.130.0/24")
		w.robot.set(vswitch.Failed, 101, 102)
		stop := w.start()
		rest(time.Minute)
		stop()
		w.expectEvents("Warning VSwitchMemberFailed", "Warning VSwitchMemberFailed")
		w.robot.set(vswitch.Ready, 102)
		defer w.start()()
		rest(time.Second)
		w.expect("bm-1=False VSwitchMemberFailed", "bm-2=True VSwitchMemberReady")
		w.expectEvents("Normal VSwitchMemberReady")
	})
}

// A read applies to the Nodes that existed before it: servers that were added to the vSwitch, and
// joined, during the read don't count as missing.
func TestALookThatIsOlderThanTheNode(t *testing.T) {
	withFixture(t, func(w *fixture) {
		w.join("bm-1", "hrobot://101", "10.1.129.0/24")
		w.robot.set(vswitch.Ready, 101)
		w.robot.slow = 20 * time.Second
		defer w.start()()
		rest(5 * time.Second)
		w.robot.set(vswitch.Ready, 102)
		w.robot.set(vswitch.Failed, 103)
		w.join("bm-2", "hrobot://102", "10.1.130.0/24")
		w.join("bm-3", "hrobot://103", "10.1.131.0/24")
		rest(30 * time.Second)
		if n := w.robot.requests(); n != 1 {
			t.Errorf("%d requests", n)
		}
		w.expect()
		// They don't wait for the regular interval.
		rest(2 * time.Minute)
		w.expect("bm-3=False VSwitchMemberFailed")
		w.expectEvents("Warning VSwitchMemberFailed")
		if n := w.robot.requests(); n != 1 {
			t.Errorf("%d requests for two Nodes that joined, want 1", n)
		}
	})
}

// Without Nodes no request is sent.
func TestWithoutNodesNoRequestIsSent(t *testing.T) {
	withFixture(t, func(w *fixture) {
		w.join("cloud", "hcloud://1", "10.244.1.0/24")
		w.join("overlay", "hrobot://9", "10.244.2.0/24")
		defer w.start()()
		rest(time.Hour)
		if n := w.robot.requests(); n != 0 {
			t.Errorf("%d requests", n)
		}
		w.expectMetric(0, 0)
	})
}

// A failed write is retried, without another request and another Event.
func TestAWriteThatFails(t *testing.T) {
	withFixture(t, func(w *fixture) {
		w.join("bm-1", "hrobot://101", "10.1.129.0/24")
		w.robot.set(vswitch.Failed, 101)
		w.refuse.Store(3)
		defer w.start()()
		rest(time.Second)
		w.expect()
		w.expectEvents()
		rest(4 * time.Minute)
		w.expect("bm-1=False VSwitchMemberFailed")
		w.expectEvents("Warning VSwitchMemberFailed")
		if n := w.robot.requests(); n != 1 {
			t.Errorf("%d requests, want 1", n)
		}
	})
}

// If all writes fail, each Node is written once a minute, and no Node waits for another.
func TestWritesThatAreRefusedForAnHour(t *testing.T) {
	withFixture(t, func(w *fixture) {
		w.join("bm-1", "hrobot://101", "10.1.129.0/24")
		w.join("bm-2", "hrobot://102", "10.1.130.0/24")
		w.robot.set(vswitch.Failed, 101, 102)
		w.refuse.Store(1000)
		stop := w.start()
		rest(time.Hour)
		stop()
		if n := 1000 - w.refuse.Load(); n < 2*50 || n > 2*61 {
			t.Errorf("%d attempts for two Nodes", n)
		}
	})
}

// With a lagging cache no message is repeated.
func TestACacheThatLags(t *testing.T) {
	withFixture(t, func(w *fixture) {
		w.lags.Store(true)
		w.join("bm-1", "hrobot://101", "10.1.129.0/24")
		w.robot.set(vswitch.Failed, 101)
		defer w.start()()
		rest(time.Hour)
		w.expectEvents("Warning VSwitchMemberFailed")
		w.expectMetric(1, 0)
		if n := w.writes.Load(); n != 1 {
			t.Errorf("%d writes, want 1", n)
		}
	})
}

// A Node that was deleted and joined again is a new one.
func TestASuccessor(t *testing.T) {
	withFixture(t, func(w *fixture) {
		w.join("bm-1", "hrobot://101", "10.1.129.0/24")
		w.robot.set(vswitch.Failed, 101)
		defer w.start()()
		rest(time.Second)
		if err := w.client.CoreV1().Nodes().Delete(w.t.Context(), "bm-1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		rest(time.Minute)
		w.expectMetric(0, 0)
		w.expectEvents("Warning VSwitchMemberFailed")
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "bm-1", UID: "another", ResourceVersion: "1"},
			Spec:       corev1.NodeSpec{ProviderID: "hrobot://101", PodCIDR: "10.1.129.0/24", PodCIDRs: []string{"10.1.129.0/24"}},
		}
		if _, err := w.client.CoreV1().Nodes().Create(w.t.Context(), node,
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		rest(time.Minute)
		w.expect("bm-1=False VSwitchMemberFailed")
		w.expectEvents("Warning VSwitchMemberFailed")
	})
}
