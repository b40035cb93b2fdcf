package survey_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/survey"
)

// watched is a Watcher over a fake API server and a simulated cloud, in a bubble.
type watched struct {
	*survey.Watcher
	t      *testing.T
	client *fake.Clientset
	sim    *hcloudsim.Simulator
}

// followed runs a test with a Watcher.
func followed(t *testing.T, prepare func(*fake.Clientset), test func(t *testing.T, w watched)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		sim, cloud := simulated(t)
		client := fake.NewClientset(installed()...)
		if prepare != nil {
			prepare(client)
		}
		w, err := survey.Watch(t.Context(), survey.Sources{Client: client, Cloud: cloud})
		if err != nil {
			t.Fatal(err)
		}
		test(t, watched{w, t, client, sim})
	})
}

func (w watched) look() survey.Live {
	w.t.Helper()
	live, err := w.Look(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return live
}

// after is what a page shows after it was open for a while.
func (w watched) after(d time.Duration) survey.Live {
	w.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		w.look()
		time.Sleep(time.Second)
	}
	return w.look()
}

func (w watched) node(t *testing.T, name string) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid-7"}, Spec: corev1.NodeSpec{PodCIDRs: []string{"10.244.7.0/24"}}}
	if _, err := w.client.CoreV1().Nodes().Create(t.Context(), node,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestWatcherShowsChanges(t *testing.T) {
	followed(t, nil, func(t *testing.T, w watched) {
		if live := w.after(time.Second); live.Snapshot.Node("node-7") != nil || live.Trouble != "" {
			t.Fatalf("before: %+v", live)
		}
		earlier := w.look().Snapshot
		w.node(t, "node-7")
		live := w.after(3 * time.Second)
		if live.Snapshot.Node("node-7") == nil {
			t.Fatal("a Node that came is not shown within three seconds")
		}
		if earlier.Node("node-7") != nil {
			t.Error("an earlier look changed under whoever has it")
		}
		if !live.Snapshot.Saw(survey.Everything) || live.Snapshot.Config.ClusterName != "mine" || len(live.Snapshot.Servers) != 1 {
			t.Errorf("what was seen before is lost: %+v", live.Snapshot.Gaps)
		}
		if err := w.client.CoreV1().Nodes().Delete(t.Context(), "node-7", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if w.after(3*time.Second).Snapshot.Node("node-7") != nil {
			t.Error("a Node that went is still shown")
		}
	})
}

func TestWatcherFollowsTheCloudWhileAClientIsConnected(t *testing.T) {
	followed(t, nil, func(t *testing.T, w watched) {
		w.sim.ResetRequests()
		network := w.sim.Networks()[0]
		if _, err := w.sim.CreateServer(hcloudsim.ServerSeed{Name: "node-2", Network: network.ID}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if n := len(w.sim.Requests()); n > 0 {
			t.Errorf("without a page the cloud gets %d requests", n)
		}
		if got := len(w.look().Snapshot.Servers); got != 2 {
			t.Errorf("a page that is opened shows %d servers of an hour ago", got)
		}
		w.sim.ResetRequests()
		w.after(time.Hour)
		if n := len(w.sim.Requests()); n < 100 || n > 900 {
			t.Errorf("%d requests to the cloud in an hour", n)
		}
	})
}

// A canceled call returns at once, and the next one collects.
func TestWatcherOfAPageThatIsClosed(t *testing.T) {
	var held atomic.Bool
	slow := func(c *fake.Clientset) {
		c.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			if held.Load() {
				time.Sleep(time.Second)
			}
			return false, nil, nil
		})
	}
	followed(t, slow, func(t *testing.T, w watched) {
		time.Sleep(time.Minute)
		held.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		first := make(chan error)
		go func() {
			_, err := w.Look(t.Context())
			first <- err
		}()
		synctest.Wait()
		second := make(chan error)
		go func() {
			_, err := w.Look(ctx)
			second <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-second; !errors.Is(err, context.Canceled) {
			t.Errorf("a call that was given up: %v", err)
		}
		if err := <-first; err != nil {
			t.Errorf("the other one: %v", err)
		}
	})
}

// The lease has its real age, even if other parts of the snapshot are older.
func TestWatcherSeesTheLeaseAsItIs(t *testing.T) {
	followed(t, nil, func(t *testing.T, w watched) {
		leases := w.client.CoordinationV1().Leases("kube-system")
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "cloud-controller-manager"}}
		if _, err := leases.Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		for i := range 60 {
			lease.Spec.RenewTime = new(metav1.NowMicro())
			if _, err := leases.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			if i%7 == 0 {
				w.node(t, fmt.Sprintf("node-%d", 100+i))
			}
			s := w.after(time.Second).Snapshot
			if s.Lease == nil {
				continue // nothing was shown since
			}
			if age := s.Taken.Sub(s.Lease.Spec.RenewTime.Time); age > 2*time.Second {
				t.Fatalf("a lease that is renewed every second seems to be %s old", age)
			}
		}
		if w.look().Snapshot.Lease == nil {
			t.Error("the lease is not seen")
		}
	})
}

// A page uses a quarter of the project's requests at most, however many servers there are.
func TestWatcherLeavesTheCloudToOthers(t *testing.T) {
	followed(t, nil, func(t *testing.T, w watched) {
		for i := range 200 {
			if _, err := w.sim.CreateServer(hcloudsim.ServerSeed{Name: fmt.Sprint("other-", i)}); err != nil {
				t.Fatal(err)
			}
		}
		w.after(time.Minute)
		w.sim.ResetRequests()
		w.after(20 * time.Minute)
		if n := len(w.sim.Requests()); n < 200 || n > 300 {
			t.Errorf("%d requests to the cloud in 20 minutes", n)
		}
	})
}

// After a slow response, the API server gets no request for twenty times as long.
func TestWatcherSparesASlowAPIServer(t *testing.T) {
	var looks atomic.Int64
	slow := func(c *fake.Clientset) {
		c.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			looks.Add(1)
			time.Sleep(time.Second)
			return false, nil, nil
		})
	}
	followed(t, slow, func(t *testing.T, w watched) {
		before := looks.Load()
		w.after(10 * time.Minute)
		if n := looks.Load() - before; n < 20 || n > 30 {
			t.Errorf("%d looks in ten minutes", n)
		}
	})
}

func TestWatcherReportsThatItIsNotUpToDate(t *testing.T) {
	var away atomic.Bool
	cut := func(c *fake.Clientset) {
		c.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			return away.Load(), nil, errors.New("connection refused")
		})
	}
	followed(t, cut, func(t *testing.T, w watched) {
		w.after(3 * time.Second)
		away.Store(true)
		live := w.after(15 * time.Second)
		if !strings.Contains(live.Trouble, "not up to date since") || !strings.Contains(live.Trouble, "connection refused") {
			t.Errorf("trouble: %q", live.Trouble)
		}
		if live.Snapshot.Node("node-1") == nil {
			t.Error("what was seen before is no longer shown")
		}
		away.Store(false)
		if live := w.after(5 * time.Second); live.Trouble != "" {
			t.Errorf("the API server is back, and still: %s", live.Trouble)
		}
	})
}

func TestWatchFailsAtOnce(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("no route to host")
	})
	if _, err := survey.Watch(t.Context(), survey.Sources{Client: client}); err == nil || !strings.Contains(err.Error(), "no route to host") {
		t.Errorf("%v", err)
	}
}
