package lb

import "time"

func checkAnnotations() []Annotation {
	return []Annotation{
		choice(annotationOwnHealthCheck, "kube-proxy, or node-port with uses-proxyprotocol",
			"How nodes are judged under externalTrafficPolicy: Cluster: by kube-proxy's health "+
				"port, or by connecting to the node port. kube-proxy does not understand the "+
				"PROXY protocol's header, and the cloud does not document whether its checks carry "+
				"one: so the default depends on it, and with it node-port counts under "+
				"externalTrafficPolicy: Local too, where kube-proxy is checked otherwise.",
			func(s *settings) *CheckMode { return &s.checkMode },
			overruled, CheckKubeProxy, CheckNodePort).atPort(pathCheckMode),
		choice(annotationCheckProtocol, "by traffic policy",
			"Checks with this protocol, on the node port unless health-check-port is set. https "+
				"is http over TLS.",
			func(s *settings) *string { return &s.listener.Check.Protocol }, nil,
			ProtocolTCP, ProtocolHTTP, ProtocolHTTPS).atPort("healthCheck.protocol"),
		integer(annotationCheckPort, "1 to 65535", "by traffic policy",
			"Checks on this port, with the protocol of health-check-protocol, else HTTP for a "+
				"Service with http or https, else TCP.",
			func(s *settings) *int { return &s.listener.Check.Port },
			1, 65535).atPort("healthCheck.port"),
		duration(annotationCheckInterval, "3s to 60s, whole seconds", "10s",
			"Time between two checks.",
			func(s *settings) *time.Duration { return &s.listener.Check.Interval },
			minInterval, maxInterval, nil).atPort("healthCheck.interval"),
		duration(annotationCheckTimeout, "1s to 60s, whole seconds", "15s",
			"Time after which a check has failed.",
			func(s *settings) *time.Duration { return &s.listener.Check.Timeout },
			minTimeout, maxTimeout, nil).atPort("healthCheck.timeout"),
		integer(annotationCheckRetries, "1 to 5", "3",
			"Failed checks before a node is unhealthy, and good ones before it is healthy again.",
			func(s *settings) *int { return &s.listener.Check.Retries },
			minRetries, maxRetries).atPort("healthCheck.retries"),
		text(HetznerPrefix+"health-check-http-path", "a path, 1 to 256 characters", "/",
			"Path that an HTTP check requests.",
			func(s *settings) *string { return &s.listener.Check.Path },
			validPath, noHTTPCheck).atPort("healthCheck.path"),
		text(HetznerPrefix+"health-check-http-domain", "a host name, at most 128 characters", "none",
			"Host header of an HTTP check.",
			func(s *settings) *string { return &s.listener.Check.Domain },
			validCheckDomain, noHTTPCheck).atPort("healthCheck.domain"),
		boolean(HetznerPrefix+"health-check-http-validate-certificate", "An HTTP check uses TLS.",
			func(s *settings) *bool { return &s.listener.Check.TLS },
			noHTTPCheck).atPort("healthCheck.tls"),
		row(HetznerPrefix+"http-status-codes", "list",
			"1 to 20 status codes between commas; ? and * are wildcards", DefaultStatusCodes,
			"Status codes that an HTTP check takes as healthy.",
			func(s *settings) *string { return &s.listener.Check.StatusCodes },
			statusCodes, noHTTPCheck).atPort("healthCheck.statusCodes"),
	}
}

// noHTTPCheck is the idleRule of options that only an HTTP check by annotations has: the default
// checks query kube-proxy, which has a fixed path and fixed status codes.
func noHTTPCheck(s settings) (why, remedy string) {
	if s.explicit() && s.explicitProtocol() != ProtocolTCP {
		return "", ""
	}
	return "only an HTTP check that annotations request has it", "set " + annotationCheckProtocol + " to http"
}

// overruled is the idleRule of the check mode. Under policy Local the mode kube-proxy is not idle:
// it lets the checks of a load balancer that was taken over follow the Service.
func overruled(s settings) (why, remedy string) {
	switch {
	case s.PodTargets:
		return withPods(s)
	case s.explicit():
		return "the health check's own protocol, port or path decides", "remove those"
	case s.local && s.checkMode == CheckNodePort && !s.connects():
		return "externalTrafficPolicy: Local is judged by healthCheckNodePort", "set externalTrafficPolicy to Cluster"
	}
	return "", ""
}
