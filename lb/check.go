package lb

import (
	"cmp"
	"slices"
)

// kube-proxy's health port answers /healthz with 503 while the node drains or its rules are stale.
// The port is kube-proxy's default for healthzBindAddress.
const (
	kubeProxyHealthPort = 10256
	healthPath          = "/healthz"
)

// explicit reports whether annotations say what to check; then the traffic policy has no say. With
// http and https, saying what to ask for says that it is asked for.
func (s settings) explicit() bool {
	c := s.listener.Check
	asks := c.Path != "" || c.StatusCodes != "" || c.Domain != "" || c.TLS
	return c.Protocol != "" || c.Port != 0 || s.listener.Protocol != ProtocolTCP && asks
}

// explicitProtocol is the protocol of a check by annotations.
func (s settings) explicitProtocol() string {
	protocol := s.listener.Check.Protocol
	if protocol == "" && s.listener.Protocol != ProtocolTCP || protocol == ProtocolHTTPS {
		return ProtocolHTTP
	}
	return cmp.Or(protocol, ProtocolTCP)
}

// checks refuses policy Local where nothing tells which nodes have endpoints.
func (p *parser) checks() {
	followsPolicy := func(s settings) bool { return s.local && !s.explicit() }
	if p.svc.HealthCheckNodePort == 0 && slices.ContainsFunc(p.atPorts(), followsPolicy) {
		p.refuse(ReasonInvalid, "spec.healthCheckNodePort", "",
			"externalTrafficPolicy: Local needs it to tell which nodes have endpoints: set a free "+
				"node port")
	}
}

// check is the health check of one port with these settings.
//
// Explicit annotations keep the meaning they have with the Hetzner controller: the node port, with
// TCP, where one of the two is left out. Otherwise pods are asked by connecting to the port that
// they serve; of nodes policy Local asks each whether it has endpoints of this Service, and policy
// Cluster whether the node's proxy works at all.
func (p *parser) check(s settings, port Port) HealthCheck {
	asked := s.listener.Check
	check := asked.pace()
	switch {
	case s.explicit():
		check = asked
		check.Protocol, check.TLS = s.explicitProtocol(), asked.TLS || asked.Protocol == ProtocolHTTPS
		check.Port, check.Path = cmp.Or(asked.Port, p.destination(port)), cmp.Or(asked.Path, "/")
	case s.PodTargets:
		check.Protocol, check.Port = ProtocolTCP, p.destination(port)
	case p.svc.Local && !s.connects():
		check.Protocol, check.Port, check.Path = ProtocolHTTP, p.svc.HealthCheckNodePort, healthPath
	case cmp.Or(s.checkMode, p.defaults.HealthCheck) == CheckNodePort, s.listener.ProxyProtocol && s.checkMode == "":
		check.Protocol, check.Port = ProtocolTCP, port.NodePort
	default:
		check.Protocol, check.Port, check.Path = ProtocolHTTP, kubeProxyHealthPort, healthPath
	}
	if check.Protocol == ProtocolTCP {
		return check.connecting(check.Port)
	}
	check.StatusCodes = cmp.Or(check.StatusCodes, DefaultStatusCodes)
	return check
}

// pace is the check with its figures and nothing that determines what is checked.
func (h HealthCheck) pace() HealthCheck {
	return HealthCheck{Interval: h.Interval, Timeout: h.Timeout, Retries: h.Retries}
}

// connecting is a check of the same pace that connects to a port.
func (h HealthCheck) connecting(port int) HealthCheck {
	h = h.pace()
	h.Protocol, h.Port = ProtocolTCP, port
	return h
}

// LabelCheck marks a load balancer whose health checks are not to follow the traffic policy: it was
// taken over, and its checks stay until the user opts in.
const LabelCheck = "underlay.dev/health-check"

const checkKept = "kept"

// KeepChecks returns the spec with the health checks that the listeners have. Figures that
// annotations set are obeyed, and a check of the node port follows it. A listener that does not
// exist yet connects to its own node port: nobody knows whether the nodes answer the check that the
// Service asks for.
func (s Spec) KeepChecks(have map[int]Listener) Spec {
	s.Listeners = slices.Clone(s.Listeners)
	for i := range s.Listeners {
		want := &s.Listeners[i]
		old, ok := have[want.Port]
		if !ok {
			want.Check = want.Check.connecting(want.DestinationPort)
			continue
		}
		check := old.Check
		if check.Port == old.DestinationPort {
			check.Port = want.DestinationPort
		}
		if s.Takeover.Annotated.Interval {
			check.Interval = want.Check.Interval
		}
		if s.Takeover.Annotated.Timeout {
			check.Timeout = want.Check.Timeout
		}
		if s.Takeover.Annotated.Retries {
			check.Retries = want.Check.Retries
		}
		want.Check = check
	}
	return s
}

// ByPort are the listeners by their ports.
func ByPort(listeners []Listener) map[int]Listener {
	byPort := make(map[int]Listener, len(listeners))
	for _, l := range listeners {
		byPort[l.Port] = l
	}
	return byPort
}

// The cloud does not say whether the health checks of a listener with the PROXY protocol begin with
// its header. kube-proxy answers a request behind a header with an error, so that every node would
// be unhealthy. Connecting to the node port works either way: a program that expects the header
// gets it, or sees a connection end. It is the default under policy Cluster. Under policy Local
// only kube-proxy knows which nodes have endpoints that are not terminating, so it is asked, and
// [Spec.unanswered] tells when nobody answers.

// connects reports whether nodes are judged by connecting to the node port under policy Local.
func (s settings) connects() bool {
	return s.listener.ProxyProtocol && s.checkMode == CheckNodePort
}

// unanswered notes the listener with the PROXY protocol whose check asks kube-proxy and finds no
// node healthy, although nodes have endpoints. Preferred are the nodes with endpoints under
// policy Local.
func (s Spec) unanswered(have State, preferred []Node) []Note {
	present := ByPort(have.Listeners)
	for _, l := range s.Listeners {
		cluster := l.Check.Port == kubeProxyHealthPort
		local := l.Check.Port == s.HealthCheckNodePort && len(preferred) > 0
		h := have.Health(l.Port)
		if !l.ProxyProtocol || l.Check.Path != healthPath || !cluster && !local || present[l.Port] != l {
			continue
		}
		if h.Unhealthy > 0 && h.Healthy+h.Unknown == 0 {
			return []Note{warningNote(ReasonCheckUnanswered, annotationOwnHealthCheck, "",
				"no node answers the health check of port %d, which asks kube-proxy: that does "+
					"not understand the PROXY protocol's header, and the cloud's checks may carry "+
					"one; if port %d of the nodes is open to the load balancer, set this to "+
					"node-port",
				l.Port, l.Check.Port)}
		}
	}
	return nil
}

// leavesCheck reports whether annotations say nothing of how nodes are judged at a port. While one
// is left, a load balancer that was taken over keeps the checks of all: nobody knows whether the
// nodes answer others there.
func (s settings) leavesCheck() bool { return s.checkMode == "" && !s.explicit() }
