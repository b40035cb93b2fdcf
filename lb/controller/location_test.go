package controller_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/lb"
)

// The default location is for new load balancers. Another default causes no warning about existing
// ones; an annotation does.
func TestLocationByDefaultMarksNoExistingLoadBalancer(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		w.create(service("web"))
		for _, place := range []lb.Defaults{{Location: "nbg1"}, {NetworkZone: "us-east"}} {
			w.stop()
			w.defaults.Location, w.defaults.NetworkZone = place.Location, place.NetworkZone
			w.message()
			w.cloud.counts()
			w.start()
			w.later()
			w.edit("web", func(svc *corev1.Service) { svc.Annotations["example.com/touched"] = place.Location })
			w.expect("another default")
			if got, events := accepted(w.service("web")), w.message(); got != "True Accepted" || len(events) != 0 {
				t.Errorf("default %+v: accepted %s, Events %q", place, got, events)
			}
		}
		w.edit("web", func(svc *corev1.Service) { svc.Annotations[lb.AnnotationLocation] = "hel1" })
		if got, events := accepted(w.service("web")), w.message(); got != "False ImmutableField" || len(events) != 1 {
			t.Errorf("an annotation: accepted %s, Events %q", got, events)
		}
	})
}
