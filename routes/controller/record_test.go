package controller_test

import (
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/underlay-ccm/underlay/routes/controller"
)

// A route is recorded before it is written, those of a hundred Nodes in a few requests, and at rest
// the record isn't written.
func TestRoutesAreRecordedBeforeTheyStand(t *testing.T) {
	withFixture(t, func(w *fixture) {
		w.table.fail = func(string) (error, bool) {
			// fail is called before the route is written.
			if len(w.table.routes) == 0 && len(w.recorded()) != 100 {
				t.Errorf("%d routes are recorded before the first stands, want all 100", len(w.recorded()))
			}
			return nil, false
		}
		w.joinMany(0, 100)
		defer w.start()()
		rest(2 * time.Minute)
		if n := w.recordWrites(); n != 1 {
			t.Errorf("the record was written %d times for 100 Nodes, want once", n)
		}
		rest(time.Hour)
		if n := w.recordWrites(); n != 1 {
			t.Errorf("the record was written %d times more in an hour at rest", n-1)
		}
	})
}

// Routes that others wrote for Nodes are recorded in one request when they are first observed.
func TestAdoptionIsOneWrite(t *testing.T) {
	withFixture(t, func(w *fixture) {
		w.joinMany(0, 10)
		for i := range 10 {
			w.table.routes = append(w.table.routes, entry(w.podCIDR(i), w.address(i)))
		}
		stop := w.start()
		rest(5 * time.Minute)
		stop()
		defer w.start()()
		rest(5 * time.Minute)
		if n := w.recordWrites(); n != 1 || len(w.recorded()) != 10 || len(w.table.log()) != 0 {
			t.Errorf("%d writes of the record, which holds %v; routes written: %q", n, w.recorded(), w.table.log())
		}
	})
}

// A deleted route is dropped from the record after the time in which it may reappear.
func TestTheRecordDropsDeletedRoutes(t *testing.T) {
	withFixture(t, func(w *fixture) {
		w.cfg.MaxDeletions = 100
		w.joinMany(0, 4)
		defer w.start()()
		rest(time.Minute)
		w.leave(nodeName(0))
		w.leave(nodeName(1))
		rest(5 * time.Minute)
		if len(w.recorded()) != 4 {
			t.Errorf("%v is recorded while a lost request may still take effect, want all four", w.recorded())
		}
		rest(10 * time.Minute)
		want := map[string]string{"10.244.2.0_24": w.address(2), "10.244.3.0_24": w.address(3)}
		if got := w.recorded(); !maps.Equal(got, want) {
			t.Errorf("%v is recorded, want %v", got, want)
		}
		if n := w.recordWrites(); n != 2 {
			t.Errorf("%d writes of the record, want one for the Nodes that joined and one for those that left", n)
		}
	})
}

// refuseRecord makes the API server reject requests for the record.
func (w *fixture) refuseRecord(verb string, err func() error) {
	w.client.PrependReactor(verb, "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		e := err()
		return e != nil, nil, e
	})
}

func forbidden() error {
	return apierrors.NewForbidden(corev1.Resource("configmaps"), controller.RecordName, errors.New("RBAC"))
}

// Without the permission to record, Nodes are routed nevertheless, the routes of this process are
// deleted with their Nodes, and one Event reports it.
func TestWithoutARecordNodesAreRouted(t *testing.T) {
	withFixture(t, func(w *fixture) {
		w.refuseRecord("*", forbidden)
		w.joinMany(0, 3)
		w.table.routes = append(w.table.routes, stale(9))
		defer w.start()()
		rest(10 * time.Minute)
		for i := range 3 {
			w.expectCondition(nodeName(i), "False RouteCreated")
		}
		w.leave(nodeName(0))
		rest(time.Hour)
		w.expectTable("10.244.1.0/24 via 10.0.0.3", "10.244.2.0/24 via 10.0.0.4", "10.244.9.0/24 via 10.0.0.77")
		if got, want := w.drainEvents(), []string{"Warning RouteAmbiguous", "Warning RoutesNotRecorded"}; !slices.Equal(got, want) {
			t.Errorf("events %q, want %q", got, want)
		}
	})
}

// Routes that a short failure of the API server kept from being recorded are recorded soon after
// it, without another trigger.
func TestAShortFaultOfTheRecordIsMadeUpFor(t *testing.T) {
	withFixture(t, func(w *fixture) {
		var refusals atomic.Int64
		w.refuseRecord("*", func() error {
			if refusals.Add(1) <= 3 {
				return errBroken
			}
			return nil
		})
		defer w.start()()
		rest(time.Minute)
		w.joinMany(0, 1)
		rest(10 * time.Second)
		if n := refusals.Load(); n <= 3 || len(w.recorded()) != 1 {
			t.Errorf("after %d requests %v is recorded, want the Node's route", n, w.recorded())
		}
	})
}

// While the record can't be read, a table without routes known as the cluster's own doesn't prove
// another cluster: the controller doesn't end, and writes nothing.
func TestAnUnknownRecordIsNoProofOfAnotherCluster(t *testing.T) {
	withFixture(t, func(w *fixture) {
		w.takeOver("left", "10.0.0.2")
		w.wrote(entry("10.244.1.0/24", "10.0.0.2"))
		w.servers.attach("b", "10.0.0.3")
		w.join("b", "10.244.2.0/24")
		var failing atomic.Bool
		failing.Store(true)
		w.refuseRecord("get", func() error {
			if failing.Load() {
				return apierrors.NewServiceUnavailable("starting")
			}
			return nil
		})
		defer w.start()()
		rest(time.Minute)
		w.expectTable("10.244.1.0/24 via 10.0.0.2")
		failing.Store(false)
		rest(2 * time.Minute)
		w.expectTable("10.244.2.0/24 via 10.0.0.3")
	})
}

// The leader recreates a deleted record. If it is lost without a leader, the next one builds it
// from the routes to Nodes; other routes are kept, and an Event reports them.
func TestALostRecord(t *testing.T) {
	withFixture(t, func(w *fixture) {
		w.joinMany(0, 2)
		stop := w.start()
		rest(time.Minute)
		lose := func() {
			if err := w.client.CoreV1().ConfigMaps("kube-system").Delete(t.Context(), controller.RecordName, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		lose()
		w.joinMany(2, 1)
		rest(time.Minute)
		if got := len(w.recorded()); got != 3 {
			t.Errorf("%d routes are recorded, want all 3", got)
		}
		stop()
		lose()
		w.leave(nodeName(0))
		w.servers.vanish(nodeName(0))
		defer w.start()()
		rest(10 * time.Minute)
		w.expectTable("10.244.0.0/24 via 10.0.0.2", "10.244.1.0/24 via 10.0.0.3", "10.244.2.0/24 via 10.0.0.4")
		if got := w.drainEvents(); !slices.Equal(got, []string{"Warning RouteAmbiguous"}) {
			t.Errorf("events %q, want one about the route that nobody knows", got)
		}
	})
}

// After a conflict, a leader merges its record with the one that another writer stored.
func TestTheRecordsOfTwoLeadersAreJoined(t *testing.T) {
	withFixture(t, func(w *fixture) {
		w.joinMany(0, 1)
		defer w.start()()
		rest(time.Minute)
		conflicts := 0
		w.refuseRecord("update", func() error {
			if conflicts++; conflicts > 1 {
				return nil
			}
			stored, err := w.client.Tracker().Get(corev1.SchemeGroupVersion.WithResource("configmaps"), "kube-system", controller.RecordName)
			if err != nil {
				return err
			}
			other := stored.(*corev1.ConfigMap).DeepCopy()
			other.Data["10.244.200.0_24"] = "10.0.0.200"
			if err := w.client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("configmaps"), other, "kube-system"); err != nil {
				return err
			}
			return apierrors.NewConflict(corev1.Resource("configmaps"), controller.RecordName, errors.New("changed"))
		})
		w.joinMany(1, 1)
		rest(5 * time.Second)
		want := map[string]string{"10.244.0.0_24": w.address(0), "10.244.1.0_24": w.address(1), "10.244.200.0_24": "10.0.0.200"}
		if got := w.recorded(); !maps.Equal(got, want) {
			t.Errorf("%v is recorded, want %v", got, want)
		}
		w.expectCondition(nodeName(1), "False RouteCreated")
	})
}
