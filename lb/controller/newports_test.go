package controller_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/lb"
)

// A port that is opened while the health checks are those of the controller before, or while the
// wanted ones are refused, connects to its own node port: nobody knows whether the nodes answer the
// wanted check. One that is opened while they are on trial does so when they are taken back.
func TestNewPortsWhileChecksAreKept(t *testing.T) {
	other := func(svc *corev1.Service) {
		svc.Spec.Ports = []corev1.ServicePort{{Name: "web", Port: 8080, Protocol: "TCP", NodePort: 30088}}
	}
	second := func(svc *corev1.Service) {
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: "tls", Port: 443, Protocol: "TCP", NodePort: 30443})
	}
	const (
		byNodePort = "add listener 8080 → 30088, tcp :30088 every 10s, timeout 15s, 3 tries"
		tlsByPort  = "add listener 443 → 30443, tcp :30443 every 10s, timeout 15s, 3 tries"
	)
	t.Run("taken over", func(t *testing.T) {
		inWorld(t, newCloud(peers("awebuid")), nodes(1), func(w *world) {
			w.create(takenOver())
			w.cloud.counts()
			w.edit("web", other)
			w.expect("another port", "delete listener 80", byNodePort)
			w.later()
			w.expect("after that")
		})
	})
	t.Run("refused", func(t *testing.T) {
		inWorld(t, newCloud(), nodes(2), func(w *world) {
			w.endpoints("web", "node-1")
			w.create(service("web"))
			w.healthy(2, 0)
			w.edit("web", toLocal)
			w.healthy(0, 2)
			time.Sleep(2 * time.Minute)
			w.settle()
			w.cloud.counts()
			w.edit("web", second)
			w.expect("one more port", tlsByPort)
			w.later()
			w.expect("after that")
		})
	})
	t.Run("refused, by checks of the node ports", func(t *testing.T) {
		inWorld(t, newCloud(), nodes(2), func(w *world) {
			w.create(service("web"))
			w.healthy(2, 0)
			w.edit("web", func(svc *corev1.Service) { svc.Annotations[lb.HetznerPrefix+"health-check-protocol"] = "http" })
			w.healthy(0, 2)
			time.Sleep(2 * time.Minute)
			w.settle()
			w.healthy(2, 0)
			w.cloud.counts()
			w.edit("web", second)
			w.expect("one more port", tlsByPort)
		})
	})
	t.Run("on trial", func(t *testing.T) {
		inWorld(t, newCloud(), nodes(2), func(w *world) {
			w.endpoints("web", "node-1")
			w.create(service("web"))
			w.healthy(2, 0)
			w.cloud.counts()
			w.edit("web", func(svc *corev1.Service) { toLocal(svc); second(svc) })
			w.expect("policy and port", byPolicy, "add listener 443 → 30443, http :32000/healthz every 10s, timeout 15s, 3 tries")
			w.healthy(0, 2)
			time.Sleep(2 * time.Minute)
			w.settle()
			w.expect("nobody is healthy", byProxy, "update listener 443 → 30443, tcp :30443 every 10s, timeout 15s, 3 tries")
			w.later()
			w.expect("after that")
		})
	})
}
