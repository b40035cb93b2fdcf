package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/hcloudsim"
)

// kubeProxy replies to checks as a node with an endpoint does: kube-proxy does not understand a
// PROXY header, and the program at the node port does.
func kubeProxy(p hcloudsim.Probe) hcloudsim.Health {
	if p.ProxyHeader && p.Service.HealthCheck.Protocol == "http" {
		return hcloudsim.HealthUnhealthy
	}
	return hcloudsim.HealthHealthy
}

// It is not documented whether the cloud's health checks send a PROXY header. The default check of
// a Service with the PROXY protocol works in both cases under policy Cluster. Under policy Local it
// works without the header, and with it a note names the annotation to set.
func TestChecksOfTheProxyProtocol(t *testing.T) {
	const (
		cluster = corev1.ServiceExternalTrafficPolicyCluster
		local   = corev1.ServiceExternalTrafficPolicyLocal
	)
	for _, c := range []struct {
		policy  corev1.ServiceExternalTrafficPolicy
		header  bool
		asks    string // the annotation
		healthy bool
	}{
		{policy: cluster, healthy: true},
		{policy: cluster, header: true, healthy: true},
		{policy: cluster, asks: "kube-proxy", healthy: true},
		{policy: cluster, header: true, asks: "kube-proxy"},
		{policy: local, healthy: true},
		{policy: local, header: true},
		{policy: local, header: true, asks: "node-port", healthy: true},
	} {
		t.Run(fmt.Sprintf("%s, header %t, %q", c.policy, c.header, c.asks), func(t *testing.T) {
			inLabWith(t, hcloudsim.Options{Prober: judging(kubeProxy), ProxyHeaderInChecks: c.header},
				func(l *lab) {
					svc := l.service("000000000001", "uses-proxyprotocol", "true")
					svc.Annotations["underlay.dev/health-check"] = c.asks
					svc.Spec.ExternalTrafficPolicy, svc.Spec.HealthCheckNodePort = c.policy, 32000
					l.endpointsOn(svc, l.nodes[0])
					for range 5 { // the simulator runs due checks when it is read
						_, err := l.once(svc, l.nodes[0])
						l.must(err)
						time.Sleep(20 * time.Second)
					}
					if healthy := len(l.sim.HealthyTargets(l.balancer(svc).ID, 80)) == 1; healthy != c.healthy {
						t.Errorf("healthy %t", healthy)
					}
					if message := statusMessage(l.live(svc)); c.healthy == strings.Contains(message, "no target is healthy") {
						t.Errorf("condition %q", message)
					}
				})
		})
	}
}

// judging returns a prober that gives no reasons.
func judging(judge func(hcloudsim.Probe) hcloudsim.Health) hcloudsim.Prober {
	return func(p hcloudsim.Probe) hcloudsim.Finding { return hcloudsim.Finding{Health: judge(p)} }
}
