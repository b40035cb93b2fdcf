package lb

import "fmt"

// The cloud does not say whether the health checks of a listener with the PROXY protocol begin with
// its header. kube-proxy answers a request behind a header with an error, so that every node would be
// unhealthy. Connecting to the node port works either way: a program that expects the header gets it,
// or sees a connection end. It is the default under policy Cluster. Under policy Local only kube-proxy
// knows which nodes have endpoints that are not terminating, so it is asked, and [Spec.unanswered]
// tells when nobody answers.

// connects reports whether nodes are judged by connecting to the node port under policy Local.
func (s settings) connects() bool {
	return s.proxy && s.checkModeSet && s.checkMode == CheckNodePort
}

// unanswered notes the listener with the PROXY protocol whose check asks kube-proxy and finds no node
// healthy, although nodes have endpoints. Preferred are the servers with endpoints under policy Local.
func (s Spec) unanswered(have State, preferred []int64) []Note {
	present := ByPort(have.Listeners)
	for _, l := range s.Listeners {
		cluster := l.Check.Port == kubeProxyHealthPort
		local := l.Check.Port == s.HealthCheckNodePort && len(preferred) > 0
		h := have.Health(l.Port)
		if !l.ProxyProtocol || l.Check.Path != healthPath || !cluster && !local || present[l.Port] != l {
			continue
		}
		if h.Unhealthy > 0 && h.Healthy+h.Unknown == 0 {
			return []Note{{
				Grade: Warning, Reason: ReasonCheckUnanswered, Field: annotationOwnHealthCheck,
				Text: fmt.Sprintf("no node answers the health check of port %d, which asks kube-proxy: that does not understand the PROXY protocol's header, and the cloud's checks may carry one; if port %d of the nodes is open to the load balancer, set this to node-port", l.Port, l.Check.Port),
			}}
		}
	}
	return nil
}
