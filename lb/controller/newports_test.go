package controller_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A port that is added while the former controller's health checks are kept has a check that
// connects to its own node port: it is unknown whether the nodes pass the wanted check.
func TestNewPortsWhileChecksAreKept(t *testing.T) {
	inWorld(t, newCloud(peers("awebuid")), nodes(1), func(w *world) {
		w.create(takenOver())
		w.cloud.counts()
		w.edit("web", func(svc *corev1.Service) {
			svc.Spec.Ports = []corev1.ServicePort{{Name: "web", Port: 8080, Protocol: "TCP", NodePort: 30088}}
		})
		w.expect("another port", "delete listener 80", "add listener 8080 → 30088, tcp :30088 every 10s, timeout 15s, 3 tries")
		w.later()
		w.expect("after that")
	})
}
