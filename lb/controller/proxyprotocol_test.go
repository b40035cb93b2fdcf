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
	for _, c := range []struct {
		policy  corev1.ServiceExternalTrafficPolicy
		header  bool
		asks    string // the annotation
		healthy bool
	}{
		{policy: corev1.ServiceExternalTrafficPolicyCluster, healthy: true},
		{policy: corev1.ServiceExternalTrafficPolicyCluster, header: true, healthy: true},
		{policy: corev1.ServiceExternalTrafficPolicyCluster, asks: "kube-proxy", healthy: true},
		{policy: corev1.ServiceExternalTrafficPolicyCluster, header: true, asks: "kube-proxy"},
		{policy: corev1.ServiceExternalTrafficPolicyLocal, healthy: true},
		{policy: corev1.ServiceExternalTrafficPolicyLocal, header: true},
		{policy: corev1.ServiceExternalTrafficPolicyLocal, header: true, asks: "node-port", healthy: true},
	} {
		t.Run(fmt.Sprintf("%s, header %t, %q", c.policy, c.header, c.asks), func(t *testing.T) {
			inLabWith(t, hcloudsim.Options{Prober: judging(kubeProxy), ProxyHeaderInChecks: c.header}, func(l *lab) {
				svc := l.service("000000000001")
				svc.Annotations[hetznerPrefix+"uses-proxyprotocol"], svc.Annotations["underlay.dev/health-check"] = "true", c.asks
				svc.Spec.ExternalTrafficPolicy, svc.Spec.HealthCheckNodePort = c.policy, 32000
				nodes := map[string]bool{l.nodes[0].Name: true}
				var o outcome
				for range 5 { // somebody has to look for the checks to be carried out
					p := newPlan(svc, l.nodes[:1], nodes, l.Defaults, time.Now())
					o = l.converge(quiet(l.t.Context()), p, hooks{})
					time.Sleep(20 * time.Second)
				}
				h := o.State.Health(80)
				if (h.Healthy == 1) != c.healthy || h.Unknown != 0 {
					t.Errorf("health %+v, checks %v", h, o.State.Listeners)
				}
				if c.healthy != (len(o.Notes) == 0) || !c.healthy && o.Notes[0].Reason != lb.ReasonCheckUnanswered {
					t.Errorf("notes %v", o.Notes)
				}
			})
		})
	}
}

// judging is a prober that says nothing of reasons.
func judging(judge func(hcloudsim.Probe) hcloudsim.Health) hcloudsim.Prober {
	return func(p hcloudsim.Probe) hcloudsim.Finding { return hcloudsim.Finding{Health: judge(p)} }
}
