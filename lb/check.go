package lb

// kube-proxy's health port answers /healthz with 503 while the node drains or its rules are stale. The
// port is kube-proxy's default for healthzBindAddress.
const (
	kubeProxyHealthPort = 10256
	healthPath          = "/healthz"
)

// explicit reports whether annotations say what to check; then the traffic policy has no say.
func (s settings) explicit() bool { return s.checkProtocol != "" || s.checkPort != 0 }

// checks answers combinations of health check settings that cannot mean anything.
func (p *parser) checks() {
	if p.set.checkPath != "" && p.set.checkProtocol != ProtocolHTTP {
		p.note(Warning, ReasonNoEffect, annotationCheckPath, p.set.checkPath,
			"only an HTTP check asks for a path: set "+HetznerPrefix+"health-check-protocol to http, or remove the annotation")
	}
	if p.set.checkModeSet && p.set.explicit() {
		p.note(Warning, ReasonNoEffect, annotationOwnHealthCheck, string(p.set.checkMode),
			"health-check-protocol or health-check-port decides: remove one of them")
	}
	if p.set.explicit() || !p.svc.Local {
		return
	}
	if p.set.checkModeSet {
		p.note(Warning, ReasonNoEffect, annotationOwnHealthCheck, string(p.set.checkMode),
			"externalTrafficPolicy: Local is judged by healthCheckNodePort: remove the annotation")
	}
	if p.svc.HealthCheckNodePort == 0 {
		p.refuse(ReasonInvalid, "spec.healthCheckNodePort", "",
			"externalTrafficPolicy: Local needs it to tell which nodes have endpoints: set a free node port")
	}
}

// check is the health check of one port.
//
// Explicit annotations keep the meaning they have with the Hetzner controller: the node port, with TCP,
// where one of the two is left out. Otherwise policy Local asks each node whether it has endpoints of
// this Service, and policy Cluster whether the node's proxy works at all.
func (p *parser) check(port Port) HealthCheck {
	s := p.set
	check := HealthCheck{Interval: s.interval, Timeout: s.timeout, Retries: s.retries}
	switch {
	case s.explicit():
		check.Protocol = or(s.checkProtocol, ProtocolTCP)
		check.Port = or(s.checkPort, port.NodePort)
		check.Path = or(s.checkPath, "/")
	case p.svc.Local:
		check.Protocol, check.Port, check.Path = ProtocolHTTP, p.svc.HealthCheckNodePort, healthPath
	case s.checkMode == CheckNodePort:
		check.Protocol, check.Port = ProtocolTCP, port.NodePort
	default:
		check.Protocol, check.Port, check.Path = ProtocolHTTP, kubeProxyHealthPort, healthPath
	}
	if check.Protocol == ProtocolTCP {
		check.Path = ""
		return check
	}
	check.StatusCodes = DefaultStatusCodes
	return check
}
