package controller_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/lb"
)

// Each port of a Service is what its own options say, and a change of them changes that port alone.
func TestOptionsOfPorts(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		svc := service("web")
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: "smtp", Port: 25, NodePort: 30025, Protocol: corev1.ProtocolTCP})
		svc.Annotations[lb.AnnotationPorts] = `{"80":{"protocol":"http","stickySessions":true},"smtp":{"proxyProtocol":true}}`
		w.create(svc)
		w.expect("creation", `create "awebuid" with 2 listeners and 1 targets`)
		got := lb.ByPort(w.cloud.all()[0].Listeners)
		if smtp, http := got[25], got[80]; smtp.Protocol != "tcp" || !smtp.ProxyProtocol || http.Protocol != "http" || http.ProxyProtocol || !http.HTTP.Sticky {
			t.Errorf("%+v", got)
		}

		w.edit("web", func(svc *corev1.Service) { svc.Annotations[lb.AnnotationPorts] = `{"80":{"protocol":"http"}}` })
		if _, writes := w.cloud.counts(); len(writes) != 2 || !strings.HasPrefix(writes[0], "update listener 25") || !strings.HasPrefix(writes[1], "update listener 80") {
			t.Errorf("changes %q", writes)
		}

		w.edit("web", func(svc *corev1.Service) { svc.Annotations[lb.AnnotationPorts] = `{"80":{"protocl":"http"}}` })
		w.expect("a mistake") // the load balancer stays as it is
		if got := accepted(w.service("web")); !strings.HasPrefix(got, "False InvalidField") {
			t.Errorf("accepted %s", got)
		}
	})
}

// A check that leaves no healthy node at its port is taken back and named, and is tried at the port
// that it was meant for.
func TestACheckAtTheWrongPort(t *testing.T) {
	inWorld(t, newCloud(), nodes(2), func(w *world) {
		svc := service("web")
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: "smtp", Port: 25, NodePort: 30025, Protocol: corev1.ProtocolTCP})
		w.create(svc)
		w.healthy(2, 0)
		ports := func(text string) {
			w.edit("web", func(svc *corev1.Service) { svc.Annotations[lb.AnnotationPorts] = text })
		}
		checks := func() string {
			byPort := lb.ByPort(w.cloud.all()[0].Listeners)
			return fmt.Sprint(byPort[25].Check.Port, byPort[80].Check.Port)
		}
		ports(`{"smtp":{"healthCheck":{"port":8025}},"80":{"healthCheck":{"port":8080}}}`)
		if got := checks(); got != "8025 8080" {
			t.Errorf("checks of ports %s", got)
		}
		w.healthy(0, 2)
		time.Sleep(2 * time.Minute)
		w.settle()
		if got := checks(); got != "10256 10256" {
			t.Errorf("checks of ports %s after they left no healthy node", got)
		}
		events := strings.Join(w.said(), "\n")
		for _, want := range []string{"HealthCheckRolledBack", "port 25: tcp :8025", "port 80: tcp :8080", lb.AnnotationState} {
			if !strings.Contains(events, want) {
				t.Errorf("Events without %q:\n%s", want, events)
			}
		}
		w.healthy(2, 0)
		w.later()
		ports(`{"smtp":{"healthCheck":{"port":8080}},"80":{"healthCheck":{"port":8025}}}`)
		if got := checks(); got != "8080 8025" {
			t.Errorf("checks of ports %s, want those that were corrected", got)
		}
	})
}
