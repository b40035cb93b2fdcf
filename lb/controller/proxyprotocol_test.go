package controller

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/lb"
)

// kubeProxy answers checks as a node with an endpoint does: it does not understand a PROXY header,
// and whoever serves at the node port does.
func kubeProxy(p hcloudsim.Probe) hcloudsim.Health {
	if p.ProxyHeader && p.Service.HealthCheck.Protocol == "http" {
		return hcloudsim.HealthUnhealthy
	}
	return hcloudsim.HealthHealthy
}

// Nobody reports whether the cloud's health checks carry a PROXY header. The check by default of a
// Service with the PROXY protocol works either way under policy Cluster; under policy Local it
// works without, and with it the Service says what to set.
func TestChecksOfTheProxyProtocol(t *testing.T) {
	const cluster, local = corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal
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
			inLabWith(t, hcloudsim.Options{Prober: judging(kubeProxy), ProxyHeaderInChecks: c.header}, func(l *lab) {
				svc := l.service("000000000001", "uses-proxyprotocol", "true")
				svc.Annotations["underlay.dev/health-check"] = c.asks
				svc.Spec.ExternalTrafficPolicy, svc.Spec.HealthCheckNodePort = c.policy, 32000
				l.endpointsOn(svc, l.nodes[0])
				var notes []lb.Note
				for range 5 { // somebody has to look for the checks to be carried out
					var err error
					notes, err = l.once(svc, l.nodes[0])
					l.must(err)
					time.Sleep(20 * time.Second)
				}
				if healthy := len(l.sim.HealthyTargets(l.balancer(svc).ID, 80)) == 1; healthy != c.healthy {
					t.Errorf("healthy %t", healthy)
				}
				if c.healthy != (len(notes) == 0) || !c.healthy && notes[0].Reason != lb.ReasonCheckUnanswered {
					t.Errorf("notes %v", notes)
				}
			})
		})
	}
}

// judging is a prober that says nothing of reasons.
func judging(judge func(hcloudsim.Probe) hcloudsim.Health) hcloudsim.Prober {
	return func(p hcloudsim.Probe) hcloudsim.Finding { return hcloudsim.Finding{Health: judge(p)} }
}
