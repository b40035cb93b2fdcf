package controller

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// Services with policy Local and the same pods that shared an address before keep it, on a node
// with these pods, although one's endpoints are observed later than the other's.
func TestSharedWithPolicyLocal(t *testing.T) {
	inWorld(t, func(w *world) {
		w.node("a")
		w.node("b")
		for name, protocol := range map[string]corev1.Protocol{"tcp": corev1.ProtocolTCP, "udp": corev1.ProtocolUDP} {
			w.service(name, localOnly, annotated("metallb.universe.tf/allow-shared-ip", "k"),
				annotated("metallb.universe.tf/loadBalancerIPs", "192.0.2.3"), func(svc *corev1.Service) {
					svc.Spec.Selector = map[string]string{"app": "traefik", "tier": "edge"}
					svc.Spec.Ports[0].Protocol = protocol
					svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.3"}}
				})
		}
		for _, late := range []string{"tcp", "udp"} {
			w.endpoints("tcp", "b")
			w.endpoints("udp", "b")
			w.endpoints(late)
			w.start()
			for _, name := range []string{"tcp", "udp"} {
				w.has(name, "192.0.2.3")
				w.expectCondition(name, "True Accepted", "has the addresses")
			}
			if w.holder("tcp") != "b" {
				t.Errorf("without endpoints of %s: %q holds it, want the node with pods", late, w.holder("tcp"))
			}
			w.kill()
		}
	})
}

// The ledger has a Service's ports as long as it has endpoints, ready or not, with any policy: with
// them, nodes distinguish packets that arrive too early from those to unserved ports.
func TestThePortsOfServicesWithEndpoints(t *testing.T) {
	for name, change := range map[string][]func(*corev1.Service){"Cluster": nil, "Local": {localOnly}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.node("a")
				w.service("one", append(change, func(svc *corev1.Service) {
					svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{
						Protocol: corev1.ProtocolUDP, Port: 53,
					})
				})...)
				w.start()
				want := func(when, ports string) {
					t.Helper()
					w.settle()
					entry, _ := w.api.ledger().Entry(addr("192.0.2.1"))
					if got := fmt.Sprint(entry.Shares[0].Served); got != ports {
						t.Errorf("%s: served are %s, want %s", when, got, ports)
					}
				}
				want("no endpoints", "[]")
				w.endpoints("one", "a")
				want("an endpoint", "[53 80]")
				unready := sliceOf("one", "a")
				unready.Endpoints[0].Conditions.Ready = new(false)
				w.api.put("endpointslices", unready)
				want("one that is not ready", "[53 80]")
				w.endpoints("one")
				want("no endpoints again", "[]")
			})
		})
	}
}
