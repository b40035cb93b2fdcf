package lb

import (
	"strings"
	"time"
)

func checkAnnotations() []Annotation {
	return []Annotation{
		choice(annotationOwnHealthCheck, "kube-proxy, or node-port with uses-proxyprotocol", "How nodes are judged under externalTrafficPolicy: Cluster: by kube-proxy's health port, or by connecting to the node port. kube-proxy does not understand the PROXY protocol's header, and the cloud does not say whether its checks carry one: so the default depends on it, and with it node-port counts under externalTrafficPolicy: Local too, where kube-proxy is asked otherwise.",
			func(s *settings, v string) { s.checkMode, s.checkModeSet = CheckMode(v), true }, withPods,
			string(CheckKubeProxy), string(CheckNodePort)),
		choice(annotationCheckProtocol, "by traffic policy", "Checks with this protocol, on the node port unless health-check-port is set. https is http over TLS.",
			func(s *settings, v string) { s.listener.Check.Protocol = v }, nil,
			ProtocolTCP, ProtocolHTTP, ProtocolHTTPS),
		{
			Name: annotationCheckPort, Type: "integer", Range: "1 to 65535",
			Default: "by traffic policy", Effect: "Checks on this port, with the protocol of health-check-protocol, else HTTP for a Service with http or https, else TCP.",
			set: integer(func(s *settings) *int { return &s.listener.Check.Port }, 1, 65535),
		},
		{
			Name: annotationCheckInterval, Type: "duration", Range: "3s to 60s, whole seconds",
			Default: "10s", Effect: "Time between two checks.",
			set: duration(func(s *settings) *time.Duration { return &s.listener.Check.Interval }, minInterval, maxInterval),
		},
		{
			Name: annotationCheckTimeout, Type: "duration", Range: "1s to 60s, whole seconds",
			Default: "15s", Effect: "Time after which a check has failed.",
			set: duration(func(s *settings) *time.Duration { return &s.listener.Check.Timeout }, minTimeout, maxTimeout),
		},
		{
			Name: annotationCheckRetries, Type: "integer", Range: "1 to 5",
			Default: "3", Effect: "Failed checks before a node is unhealthy, and good ones before it is healthy again.",
			set: integer(func(s *settings) *int { return &s.listener.Check.Retries }, minRetries, maxRetries),
		},
		{
			Name: annotationCheckPath, Type: "text", Range: "a path, 1 to 256 characters",
			Default: "/", Effect: "Path that an HTTP check asks for.",
			set: text(func(s *settings) *string { return &s.listener.Check.Path }, validPath), idle: noHTTPCheck,
		},
		{
			Name: annotationCheckDomain, Type: "text", Range: "a host name, at most 128 characters",
			Default: "none", Effect: "Host header of an HTTP check.",
			set: text(func(s *settings) *string { return &s.listener.Check.Domain }, validCheckDomain), idle: noHTTPCheck,
		},
		boolean(annotationCheckTLS, "An HTTP check uses TLS.",
			func(s *settings) *bool { return &s.listener.Check.TLS }, noHTTPCheck),
		{
			Name: annotationCheckCodes, Type: "list", Range: "1 to 20 status codes between commas; ? and * are wildcards",
			Default: DefaultStatusCodes, Effect: "Answers that an HTTP check takes as healthy.",
			set: list(func(s *settings, items []string) { s.listener.Check.StatusCodes = strings.Join(items, ",") }, 20, validStatusCode), idle: noHTTPCheck,
		},
	}
}

func noHTTPCheck(s settings) string {
	return remedied(withoutHTTPCheck(s), "set "+annotationCheckProtocol+" to http")
}

// withoutHTTPCheck concerns what only a check by annotations has: the checks that follow the traffic
// policy ask kube-proxy, whose paths and answers are known.
func withoutHTTPCheck(s settings) string {
	if s.explicit() && s.explicitProtocol() != ProtocolTCP {
		return ""
	}
	return "only an HTTP check that annotations ask for has it"
}

// overruled concerns how nodes are judged where nothing says what to check.
func overruled(s settings) string {
	switch {
	case s.explicit():
		return "what the health check of this port says beside it decides"
	case s.local && s.checkMode == CheckNodePort && !s.connects():
		return "externalTrafficPolicy: Local is judged by healthCheckNodePort"
	}
	return ""
}
