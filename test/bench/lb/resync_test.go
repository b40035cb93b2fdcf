package lb_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/lb/controller"
)

const (
	manyServices = 200
	manyNodes    = 50
	pageSize     = 50
)

// crowd is a cluster of many Services that all have their load balancers.
func crowd(t testing.TB) *world {
	t.Helper()
	w := newWorld(t, hcloudsim.Options{})
	for i := range manyNodes {
		w.addNode(fmt.Sprint("node-", i))
	}
	for i := range manyServices {
		w.addService(fmt.Sprint("web-", i))
	}
	w.start()
	err := wait.PollUntilContextTimeout(w.ctx, 500*time.Millisecond, 5*time.Minute, true,
		func(ctx context.Context) (bool, error) {
			list, err := w.api.CoreV1().Services("default").List(ctx, metav1.ListOptions{})
			if err != nil {
				return false, err
			}
			for i := range list.Items {
				if !meta.IsStatusConditionTrue(list.Items[i].Status.Conditions, controller.ConditionAccepted) {
					return false, nil
				}
			}
			return true, nil
		})
	w.must(err)
	w.stop()
	w.spent()
	return w
}

// A restart with many Services costs one list page for every 50 load balancers, and no write,
// neither to the cloud nor to the API server.
func TestResyncOfManyServices(t *testing.T) {
	w := crowd(t)
	w.api.ClearActions()
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	w.start()
	pages := manyServices / pageSize
	err := wait.PollUntilContextTimeout(w.ctx, time.Millisecond, time.Minute, true,
		func(context.Context) (bool, error) {
			return len(w.sim.Requests()) >= pages, nil
		})
	w.must(err)
	took := time.Since(began)
	time.Sleep(time.Second) // an unwanted request would be sent now
	runtime.GC()
	runtime.ReadMemStats(&after)
	w.stop()
	if c := w.spent(); c != (cost{reads: pages}) {
		t.Errorf("%+v for %d load balancers, want %d reads", c, manyServices, pages)
	}
	for _, a := range w.api.Actions() {
		if verb := a.GetVerb(); verb != "list" && verb != "watch" {
			t.Errorf("the API server was asked to %s %s", verb, a.GetResource().Resource)
		}
	}
	t.Logf("%d Services x %d nodes: %d list requests, 0 writes, %.2f s until everything was read, %.1f MB more on the heap",
		manyServices, manyNodes, pages, took.Seconds(),
		float64(int64(after.HeapAlloc)-int64(before.HeapAlloc))/1e6)
}

// BenchmarkResync is a restart of a converged controller until it has checked everything.
func BenchmarkResync(b *testing.B) {
	w := crowd(b)
	for b.Loop() {
		began := time.Now()
		w.start()
		for len(w.sim.Requests()) < manyServices/pageSize {
			time.Sleep(time.Millisecond)
		}
		took := time.Since(began)
		w.stop()
		c := w.spent()
		if c.writes != 0 {
			b.Fatalf("%+v", c)
		}
		recordResync(b, took, c)
	}
	b.ReportMetric(float64(manyServices/pageSize), "requests/op")
}
