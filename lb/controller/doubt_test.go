package controller_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/podingress"
	"github.com/underlay-ccm/underlay/lb"
)

// If the servers of all Nodes are missing, as in a pool without machines, load balancers of other
// Services prove that the project is the right one.
func TestLoadBalancersEndDoubt(t *testing.T) {
	inWorld(t, newCloud(), []runtime.Object{bare(5, "10.1.0.5"), node("node-2", 2)}, func(w *world) {
		w.createAll(inNetwork("web"), inNetwork("leaves"), sharing("a", 1, 80))
		w.settle()
		for _, have := range w.cloud.all() {
			if slices.Contains(have.Services(), string(w.service("leaves").UID)) {
				must(w.cloud.client.Apply(context.Background(), have, lb.Delete{}))
			}
		}
		must(w.cloud.sim.DeleteServer(2))
		w.editNode("node-2", func(n *corev1.Node) { n.Labels[corev1.LabelNodeExcludeBalancers] = "" })
		w.delete("leaves")
		w.createAll(inNetwork("fresh"), managedService("secure"), sharingOf("fresh-b", "other"))
		w.later()
		w.later()
		if len(w.service("leaves").Finalizers) != 0 {
			t.Errorf("leaves: %s", w.shown("leaves"))
		}
		for _, name := range []string{"fresh", "secure", "fresh-b"} {
			if now := w.shown(name); strings.Contains(now, `at ""`) {
				t.Errorf("%s: %s", name, now)
			}
		}
	})
}

// Agents get a Service's ingress also while the controller verifies whether orphan annotations can
// be removed.
func TestVerificationDelaysNoIngress(t *testing.T) {
	inPodWorld(t, hcloudsim.Options{}, func(w *world, p *pods) {
		p.are(map[lb.Target]string{podAt(1, 1): "ready"})
		w.create(podService())
		w.editNode("node-2", func(n *corev1.Node) {
			n.Annotations = map[string]string{podingress.Annotation("gone"): podingress.Ingress{}.String()}
		})
		must(w.cloud.sim.Inject(hcloudsim.Fault{Match: "GET /servers", Status: http.StatusServiceUnavailable, Times: -1}))
		w.cloud.sim.ResetRequests()
		asked := func() bool {
			return slices.ContainsFunc(w.cloud.sim.Requests(), func(r hcloudsim.Request) bool { return r.Path == "/v1/servers" })
		}
		for range 600 {
			if asked() {
				break
			}
			time.Sleep(time.Second)
		}
		if !asked() {
			t.Fatal("nobody doubts")
		}
		p.are(map[lb.Target]string{podAt(1, 1): "ready", podAt(2, 7): "ready"})
		time.Sleep(10 * time.Second) // the client slows down after failures
		w.settle()
		if now := w.openings(); !strings.Contains(now, podAt(2, 7).Address.String()) {
			t.Errorf("opened:\n%s", now)
		}
		w.cloud.sim.ClearFaults()
		w.later()
		if now := w.openings(); strings.Contains(now, "gone") {
			t.Errorf("in the end opened:\n%s", now)
		}
	})
}
