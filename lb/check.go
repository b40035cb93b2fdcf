package lb

import (
	"cmp"
	"slices"
)

// kube-proxy's health port, by default of healthzBindAddress, returns 503 for /healthz while the
// node drains or its rules are stale.
const (
	kubeProxyHealthPort = 10256
	healthPath          = "/healthz"
)

// explicit reports whether annotations configure the check; then the traffic policy does not
// apply. With http and https, options of the HTTP request imply an HTTP check.
func (s settings) explicit() bool {
	c := s.listener.Check
	needsHTTP := c.Path != "" || c.StatusCodes != "" || c.Domain != "" || c.TLS
	return c.Protocol != "" || c.Port != 0 || s.listener.Protocol != ProtocolTCP && needsHTTP
}

func (s settings) explicitProtocol() string {
	protocol := s.listener.Check.Protocol
	if protocol == "" && s.listener.Protocol != ProtocolTCP || protocol == ProtocolHTTPS {
		return ProtocolHTTP
	}
	return cmp.Or(protocol, ProtocolTCP)
}

// checks refuses policy Local without healthCheckNodePort, which reports the nodes with endpoints.
func (p *parser) checks() {
	followsPolicy := func(s settings) bool { return s.local && !s.explicit() }
	if p.svc.HealthCheckNodePort == 0 && slices.ContainsFunc(p.atPorts(), followsPolicy) {
		p.refuse(ReasonInvalid, "spec.healthCheckNodePort", "",
			"externalTrafficPolicy: Local needs it to find the nodes with endpoints: set a free "+
				"node port")
	}
}

// check returns the health check of a port with these settings.
//
// Explicit annotations mean the same as with the Hetzner controller: without a port, the node port
// is checked; without a protocol, the check uses TCP, or HTTP for a listener with http or https.
// Otherwise pods are checked by a connection to the port that they serve. Under policy Local a
// node's check reports whether it has endpoints of this Service, and under policy Cluster whether
// its kube-proxy works.
func (p *parser) check(s settings, port Port) HealthCheck {
	requested := s.listener.Check
	check := requested.pace()
	switch {
	case s.explicit():
		check = requested
		check.Protocol, check.TLS = s.explicitProtocol(), requested.TLS ||
			requested.Protocol == ProtocolHTTPS
		check.Port, check.Path = cmp.Or(requested.Port, p.destination(port)), cmp.Or(requested.Path, "/")
	case s.PodTargets:
		check.Protocol, check.Port = ProtocolTCP, p.destination(port)
	case p.svc.Local && !s.connects():
		check.Protocol, check.Port, check.Path = ProtocolHTTP, p.svc.HealthCheckNodePort, healthPath
	case cmp.Or(s.checkMode, p.defaults.HealthCheck) == CheckNodePort,
		s.listener.ProxyProtocol && s.checkMode == "":
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

// pace returns only the interval, timeout and retries of the check.
func (h HealthCheck) pace() HealthCheck {
	return HealthCheck{Interval: h.Interval, Timeout: h.Timeout, Retries: h.Retries}
}

func (h HealthCheck) connecting(port int) HealthCheck {
	h = h.pace()
	h.Protocol, h.Port = ProtocolTCP, port
	return h
}

// LabelCheck marks a load balancer that keeps its health checks from before it was taken over,
// until the user opts in.
const LabelCheck = "underlay.dev/health-check"

const checkKept = "kept"

// KeepChecks returns the spec with the health checks of the existing listeners, with annotated
// intervals, timeouts and retries; a check of the node port follows it. The check of a new
// listener connects to its node port, because nodes may not reply to the Service's own check.
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

// ByPort returns the listeners by port.
func ByPort(listeners []Listener) map[int]Listener {
	byPort := make(map[int]Listener, len(listeners))
	for _, l := range listeners {
		byPort[l.Port] = l
	}
	return byPort
}

// The cloud does not document whether the health checks of a listener with the PROXY protocol
// begin with its header. kube-proxy returns an error for a request after such a header, so that
// every node would be unhealthy. A connection to the node port works in both cases: a program that
// expects the header receives it, or only sees the connection close. It is the default under
// policy Cluster. Under policy Local only kube-proxy has the nodes with endpoints that are not
// terminating, so it is checked nevertheless.

func (s settings) connects() bool {
	return s.listener.ProxyProtocol && s.checkMode == CheckNodePort
}

// leavesCheck reports whether no annotation configures a port's check. While there is such a port,
// a load balancer that was taken over keeps all checks, because nodes may not reply to new checks.
func (s settings) leavesCheck() bool { return s.checkMode == "" && !s.explicit() }
