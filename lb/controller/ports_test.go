package controller_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/lb"
)

// The options of each port configure its listener, and a change of them changes that listener only.
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
