package controller_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/underlay-ccm/underlay/lb"
)

// own returns a load balancer with the labels of the Service web.
func own() lb.State {
	s := peers("awebuid")
	s.Labels = lb.Owner{Cluster: "demo", UID: "web-uid"}.Labels()
	return s
}

func clusterIP(svc *corev1.Service) { svc.Spec.Type = corev1.ServiceTypeClusterIP }

func going(svc *corev1.Service) { svc.DeletionTimestamp = &metav1.Time{Time: time.Now()} }

func goingClusterIP(svc *corev1.Service) { clusterIP(svc); going(svc) }

// A load balancer with an exact label of a Service is deleted when the Service requests none any
// more, also if that happened while no controller ran and the Service shows no owner.
func TestLeftoversOfAServiceThatChangedUnobserved(t *testing.T) {
	for name, c := range map[string]struct {
		balancer  lb.State
		change    func(*corev1.Service)
		finalizer bool // is kept
	}{
		"ours, ClusterIP":                   {own(), clusterIP, false},
		"ours, ClusterIP and deleted":       {own(), goingClusterIP, false},
		"ours, deleted":                     {own(), going, false},
		"ours, another class":               {own(), toAnother, true},
		"ours, another class and deleted":   {own(), func(svc *corev1.Service) { toAnother(svc); going(svc) }, true},
		"the peer's, ClusterIP":             {peers("awebuid"), clusterIP, false},
		"the peer's, renamed, ClusterIP":    {peers("shop"), clusterIP, false},
		"the peer's, ClusterIP and deleted": {peers("awebuid"), goingClusterIP, false},
		"the peer's, deleted":               {peers("awebuid"), going, false},
	} {
		t.Run(name, func(t *testing.T) {
			svc := takenOver()
			c.change(svc)
			inWorld(t, newCloud(c.balancer), append(nodes(1), svc), func(w *world) {
				got := w.service("web")
				if len(w.cloud.all()) != 0 || (len(got.Finalizers) != 0) != c.finalizer || accepted(got) != "none" {
					t.Errorf("finalizers %v, accepted %s, cloud:\n%s", got.Finalizers, accepted(got), w.cloud)
				}
				w.message()
				w.cloud.counts()
				w.later()
				if reads, writes := w.cloud.counts(); reads != 1 || len(writes) != 0 || len(w.message()) != 0 {
					t.Errorf("after that: %d reads, want the regular one, and %v", reads, writes)
				}
			})
		})
	}
}

// Without such a label the controller removes neither a load balancer nor the finalizer, and an
// Event has the remedy. A Service of another implementation causes no request.
func TestUnknownLoadBalancersAreLeftAlone(t *testing.T) {
	elsewhere := own()
	elsewhere.Labels = lb.Owner{Cluster: "another", UID: "web-uid"}.Labels()
	named := peers("awebuid")
	named.Labels = nil
	twice := own()
	twice.ID = 18
	for name, c := range map[string]struct {
		balancers []lb.State
		change    func(*corev1.Service)
		says      string
	}{
		"nothing there":                    {nil, clusterIP, `"path":"/metadata/finalizers/1"`},
		"nothing there, deleted":           {nil, goingClusterIP, "kubectl -n default patch service web"},
		"another cluster's":                {[]lb.State{elsewhere}, clusterIP, `cluster "demo"`},
		"one of our name, without a label": {[]lb.State{named}, clusterIP, "delete the Service's load balancer in the cloud"},
		"two with our labels":              {[]lb.State{own(), twice}, clusterIP, "more than one load balancer"},
		"another class, the peer's":        {[]lb.State{peers("awebuid")}, toAnother, ""},
		"another class":                    {nil, toAnother, ""},
		"another class, deleted":           {nil, func(svc *corev1.Service) { toAnother(svc); going(svc) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			svc := takenOver()
			svc.Finalizers = []string{"example.com/first", finalizer}
			c.change(svc)
			inWorld(t, newCloud(c.balancers...), append(nodes(1), svc), func(w *world) {
				events := w.message()
				if c.says == "" && len(events) != 0 || c.says != "" && (len(events) != 1 || !strings.Contains(events[0], c.says)) {
					t.Errorf("Events %q, want one that says %q", events, c.says)
				}
				w.cloud.counts()
				w.later()
				w.later()
				if got := w.service("web"); len(got.Finalizers) != 2 || len(w.cloud.all()) != len(c.balancers) || accepted(got) != "none" {
					t.Errorf("finalizers %v, accepted %s, cloud:\n%s", got.Finalizers, accepted(got), w.cloud)
				}
				if reads, _ := w.cloud.counts(); len(w.message()) != 0 || len(c.balancers) < 2 && reads > 2 {
					t.Errorf("it is told again and again, with %d reads", reads)
				}
			})
		})
	}
}

// A cleanup that is interrupted after the deletion of the load balancer still removes the
// finalizer.
func TestAnInterruptedCleanupGoesOn(t *testing.T) {
	svc := takenOver()
	clusterIP(svc)
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		w.stop()
		w.cloud = newCloud(peers("awebuid"))
		refused := 0
		w.api.PrependReactor("patch", "services", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if patch := string(a.(clienttesting.PatchAction).GetPatch()); refused < 2 && strings.Contains(patch, "inalizers") {
				refused++
				return true, nil, errors.New("the API server is away")
			}
			return false, nil, nil
		})
		w.create(svc)
		w.start()
		w.stop()
		w.start()
		w.later()
		if got := w.service("web"); refused != 2 || len(got.Finalizers) != 0 || len(w.cloud.all()) != 0 {
			t.Errorf("refused %d times, finalizers %v, cloud:\n%s", refused, got.Finalizers, w.cloud)
		}
	})
}
