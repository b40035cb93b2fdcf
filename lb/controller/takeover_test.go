package controller_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/lb"
	"github.com/underlay-ccm/underlay/lb/lbtest"
)

// peers is a load balancer that the Hetzner controller made for the Service web.
func peers(name string) lb.State {
	return lb.State{
		ID: 17, Name: name, Type: "lb11", Location: "fsn1", NetworkZone: lbtest.Zone, Algorithm: lb.RoundRobin, Public: true,
		Network: 7, Labels: map[string]string{lb.LabelPeer: "web-uid", "team": "web"},
		Listeners: []lb.Listener{{Port: 80, DestinationPort: 30080, Protocol: "tcp", Check: lb.HealthCheck{Protocol: "tcp", Port: 30080, Interval: 15e9, Timeout: 10e9, Retries: 3}}},
		Targets:   []lb.Target{{Server: 1}},
	}
}

// The Hetzner controller's load balancer goes on as it is, with our labels beside its own, under whatever name
// it has, also if nothing but the name leads to it.
func TestTakeoverFromTheHetznerController(t *testing.T) {
	for name, c := range map[string]struct {
		balancer string
		status   bool // the Service shows its addresses
		changes  []string
	}{
		"the name by default":       {"awebuid", true, []string{`set name "awebuid" and 5 labels`}},
		"by its name alone":         {"awebuid", false, []string{`create "awebuid" with 1 listeners and 1 targets`, `set name "awebuid" and 5 labels`}},
		"a name that was different": {"before", true, []string{`set name "awebuid" and 5 labels`}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, lbtest.NewCloud(peers(c.balancer)), nodes(1), func(w *world) {
				svc := service("web")
				if c.status {
					svc = takenOver()
				}
				w.create(svc)
				w.expect("takeover", c.changes...)
				all := w.cloud.All()
				if len(all) != 1 || all[0].ID != 17 || all[0].Labels["team"] != "web" || all[0].Labels[lb.LabelPeer] != "web-uid" {
					t.Fatalf("%+v", all)
				}
				if got := accepted(w.service("web")); got != "True Accepted" || !strings.Contains(strings.Join(w.said(), "\n"), "HealthCheckKept") {
					t.Errorf("accepted %s, and no word about the checks", got)
				}
				w.later()
				w.restart()
				w.expect("after that")
				w.edit("web", func(svc *corev1.Service) { svc.Annotations["underlay.dev/health-check"] = "kube-proxy" })
				w.expect("opted in", `set name "awebuid" and 4 labels`, byProxy)
				w.delete("web")
				if len(w.cloud.All()) != 0 {
					t.Errorf("left behind:\n%s", w.cloud)
				}
			})
		})
	}
}

// Nothing of others is taken, whatever a Service says or whoever copied which label.
func TestNobodysTrafficIsTaken(t *testing.T) {
	copied := lb.State{ID: 20, Name: "copy", Labels: lb.Owner{Cluster: "demo", UID: "web-uid"}.Labels()}
	gone := peers("awebuid")
	gone.Labels = map[string]string{lb.LabelPeer: "a-service-that-is-gone"}
	twice := peers("second")
	twice.ID = 18
	for name, c := range map[string]struct {
		balancers []lb.State
		adopt     bool
	}{
		"the peer's, for a UID that is no more":         {[]lb.State{gone}, false},
		"the same, to be adopted":                       {[]lb.State{gone}, true},
		"a foreign one with our name":                   {[]lb.State{{ID: 5, Name: "awebuid"}}, false},
		"another cluster's with our name":               {[]lb.State{{ID: 5, Name: "awebuid", Labels: lb.Owner{Cluster: "other", UID: "web-uid"}.Labels()}}, true},
		"another Service's with our name":               {[]lb.State{{ID: 5, Name: "awebuid", Labels: lb.Owner{Cluster: "demo", UID: "other"}.Labels()}}, true},
		"the peer's label, copied to a second one":      {[]lb.State{peers("awebuid"), twice}, false},
		"our labels, copied before ours was made twice": {[]lb.State{copied, {ID: 21, Name: "copy-2", Labels: copied.Labels}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, lbtest.NewCloud(c.balancers...), nodes(1), func(w *world) {
				before := fmt.Sprintf("%+v", w.cloud.All())
				svc := takenOver()
				svc.Annotations["underlay.dev/adopt"] = fmt.Sprint(c.adopt)
				w.create(svc)
				w.later()
				w.restart()
				w.later()
				if got := accepted(w.service("web")); got != "False LoadBalancerNotOwned" {
					t.Errorf("accepted %s", got)
				}
				if events := w.said(); len(events) != 1 || !strings.Contains(events[0], "LoadBalancerNotOwned") {
					t.Errorf("Events %q, want one", events)
				}
				if after := fmt.Sprintf("%+v", w.cloud.All()); after != before {
					t.Errorf("changed:\n%s\nwas\n%s", after, before)
				}
			})
		})
	}
}

func TestAdoption(t *testing.T) {
	bare := peers("web")
	bare.Labels = map[string]string{"team": "web"}
	inWorld(t, lbtest.NewCloud(bare), nodes(1), func(w *world) {
		svc := service("web")
		svc.Annotations[lb.AnnotationName] = "web"
		w.create(svc)
		if events := w.said(); accepted(w.service("web")) != "False LoadBalancerNotOwned" || len(events) != 1 || !strings.Contains(events[0], "underlay.dev/adopt") {
			t.Errorf("without being asked: accepted %s, Events %q", accepted(w.service("web")), events)
		}
		w.cloud.Counts()
		w.edit("web", func(svc *corev1.Service) { svc.Annotations["underlay.dev/adopt"] = "true" })
		w.expect("adopted", `set name "web" and 4 labels`)
		if got := w.service("web"); accepted(got) != "True Accepted" || len(w.cloud.All()) != 1 || w.cloud.All()[0].ID != 17 {
			t.Errorf("accepted %s:\n%s", accepted(got), w.cloud)
		}
	})
}

// Two Services that claim one name: the first has it, the second is told, and gets it when the first goes.
func TestTwoServicesOneName(t *testing.T) {
	inWorld(t, lbtest.NewCloud(), nodes(1), func(w *world) {
		for _, name := range []string{"first", "second"} {
			svc := service(name)
			svc.Annotations[lb.AnnotationName] = "shared"
			w.create(svc)
		}
		w.later()
		owned := func(uid string) bool { return slices.Equal(w.cloud.All()[0].Services(), []string{uid}) }
		if len(w.cloud.All()) != 1 || !owned("first-uid") || accepted(w.service("second")) != "False LoadBalancerNotOwned" {
			t.Errorf("second: %s\n%+v", accepted(w.service("second")), w.cloud.All())
		}
		w.delete("first")
		if err := w.api.CoreV1().Services("default").Delete(context.Background(), "first", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.later()
		if len(w.cloud.All()) != 1 || !owned("second-uid") || accepted(w.service("second")) != "True Accepted" {
			t.Errorf("second: %s\n%+v", accepted(w.service("second")), w.cloud.All())
		}
	})
}
