package lb

import (
	"slices"
	"time"
)

// Prefixes of the annotations that are read.
const (
	// HetznerPrefix holds the annotations of the Hetzner cloud controller manager; their meaning is kept.
	HetznerPrefix = "load-balancer.hetzner.cloud/"
	// OwnPrefix holds ours.
	OwnPrefix = "underlay.dev/"
)

// Annotations that are named outside of the table.
const (
	AnnotationName         = HetznerPrefix + "name"
	AnnotationType         = HetznerPrefix + "type"
	AnnotationLocation     = HetznerPrefix + "location"
	AnnotationNetworkZone  = HetznerPrefix + "network-zone"
	AnnotationNodeSelector = HetznerPrefix + "node-selector"

	annotationPublicOff      = HetznerPrefix + "disable-public-network"
	annotationPrivateIP      = HetznerPrefix + "use-private-ip"
	annotationIPv6Off        = HetznerPrefix + "ipv6-disabled"
	annotationCheckPath      = HetznerPrefix + "health-check-http-path"
	annotationOwnHealthCheck = OwnPrefix + "health-check"
)

// Annotation is one row of the table: everything there is to know about one annotation.
type Annotation struct {
	Name    string // with its prefix
	Type    string
	Range   string
	Default string
	Effect  string
	// Honored is false for annotations whose users get told that they are not supported yet.
	Honored bool

	set setter
}

// Annotations returns the table of all annotations, sorted as a reader wants them: by subject.
func Annotations() []Annotation {
	return slices.Concat(generalAnnotations(), networkAnnotations(), checkAnnotations(), laterAnnotations())
}

func generalAnnotations() []Annotation {
	return []Annotation{
		{
			Name: AnnotationName, Type: "text", Range: "1 to 128 characters, no space at either end",
			Default: "a name made of the Service's UID", Effect: "Name of the load balancer, unique in the project.",
			Honored: true, set: text(func(s *settings) *string { return &s.name }, validName),
		},
		{
			Name: AnnotationType, Type: "text", Range: "lb11, lb21, lb31, or another type that the cloud offers",
			Default: "lb11", Effect: "How many ports and nodes fit: 5 and 25, 15 and 75, 30 and 150.",
			Honored: true, set: text(func(s *settings) *string { return &s.kind }, validIdentifier),
		},
		{
			Name: AnnotationLocation, Type: "text", Range: "a location: fsn1, nbg1, hel1, ash, hil, sin",
			Default: "none", Effect: "Where the load balancer is created. Excludes network-zone; one of the two is needed.",
			Honored: true, set: text(func(s *settings) *string { return &s.location }, validIdentifier),
		},
		{
			Name: AnnotationNetworkZone, Type: "text", Range: "a network zone: eu-central, us-east, us-west, ap-southeast",
			Default: "none", Effect: "Lets the cloud choose a location in the zone. Excludes location.",
			Honored: true, set: text(func(s *settings) *string { return &s.zone }, validIdentifier),
		},
		{
			Name: HetznerPrefix + "algorithm-type", Type: "choice", Range: "round_robin, least_connections",
			Default: "round_robin", Effect: "How a healthy node is chosen for a connection.",
			Honored: true, set: choice(func(s *settings, v string) { s.algorithm = Algorithm(v) }, string(RoundRobin), string(LeastConnections)),
		},
		{
			Name: HetznerPrefix + "protocol", Type: "choice", Range: "tcp",
			Default: "tcp", Effect: "Protocol of all ports. http and https are not supported yet.",
			Honored: true, set: choice(func(*settings, string) {}, ProtocolTCP),
		},
		{
			Name: HetznerPrefix + "uses-proxyprotocol", Type: "boolean", Range: "true, false",
			Default: "false", Effect: "Sends the PROXY protocol's header to the nodes, so that pods learn the client's address.",
			Honored: true, set: boolean(func(s *settings) *bool { return &s.proxy }),
		},
		{
			Name: HetznerPrefix + "hostname", Type: "text", Range: "a DNS name",
			Default: "none", Effect: "Shown in the Service's status instead of addresses.",
			Honored: true, set: text(func(s *settings) *string { return &s.hostname }, validHostname),
		},
		{
			Name: AnnotationNodeSelector, Type: "text", Range: "a label selector",
			Default: "all nodes", Effect: "Only nodes with matching labels become targets.",
			Honored: true, set: text(func(s *settings) *string { return &s.nodeSelector }, func(string) error { return nil }),
		},
	}
}

func networkAnnotations() []Annotation {
	return []Annotation{
		{
			Name: annotationPrivateIP, Type: "boolean", Range: "true, false",
			Default: "false", Effect: "Reaches nodes at their address in the configured network.",
			Honored: true, set: boolean(func(s *settings) *bool { return &s.usePrivateIP }),
		},
		{
			Name: HetznerPrefix + "disable-private-ingress", Type: "boolean", Range: "true, false",
			Default: "false", Effect: "Keeps the load balancer's address in the network out of the Service's status.",
			Honored: true, set: boolean(func(s *settings) *bool { return &s.privateOff }),
		},
		{
			Name: annotationPublicOff, Type: "boolean", Range: "true, false",
			Default: "false", Effect: "Switches the load balancer's public interface off. Needs use-private-ip.",
			Honored: true, set: boolean(func(s *settings) *bool { return &s.publicOff }),
		},
		{
			Name: annotationIPv6Off, Type: "boolean", Range: "true, false",
			Default: "false", Effect: "Keeps the load balancer's IPv6 address out of the Service's status.",
			Honored: true, set: boolean(func(s *settings) *bool { return &s.ipv6Off }),
		},
	}
}

func checkAnnotations() []Annotation {
	return []Annotation{
		{
			Name: annotationOwnHealthCheck, Type: "choice", Range: "kube-proxy, node-port",
			Default: "kube-proxy", Effect: "How nodes are judged under externalTrafficPolicy: Cluster: by kube-proxy's health port, or by connecting to the node port.",
			Honored: true, set: choice(func(s *settings, v string) { s.checkMode, s.checkModeSet = CheckMode(v), true }, string(CheckKubeProxy), string(CheckNodePort)),
		},
		{
			Name: HetznerPrefix + "health-check-protocol", Type: "choice", Range: "tcp, http",
			Default: "by traffic policy", Effect: "Checks with this protocol, on the node port unless health-check-port is set.",
			Honored: true, set: choice(func(s *settings, v string) { s.checkProtocol = v }, ProtocolTCP, ProtocolHTTP),
		},
		{
			Name: HetznerPrefix + "health-check-port", Type: "integer", Range: "1 to 65535",
			Default: "by traffic policy", Effect: "Checks on this port, with TCP unless health-check-protocol is set.",
			Honored: true, set: integer(func(s *settings) *int { return &s.checkPort }, 1, 65535),
		},
		{
			Name: HetznerPrefix + "health-check-interval", Type: "duration", Range: "3s to 60s, whole seconds",
			Default: "10s", Effect: "Time between two checks.",
			Honored: true, set: duration(func(s *settings) *time.Duration { return &s.interval }, minInterval, maxInterval),
		},
		{
			Name: HetznerPrefix + "health-check-timeout", Type: "duration", Range: "1s to 60s, whole seconds",
			Default: "15s", Effect: "Time after which a check has failed.",
			Honored: true, set: duration(func(s *settings) *time.Duration { return &s.timeout }, minTimeout, maxTimeout),
		},
		{
			Name: HetznerPrefix + "health-check-retries", Type: "integer", Range: "1 to 5",
			Default: "3", Effect: "Failed checks before a node is unhealthy, and good ones before it is healthy again.",
			Honored: true, set: integer(func(s *settings) *int { return &s.retries }, minRetries, maxRetries),
		},
		{
			Name: annotationCheckPath, Type: "text", Range: "a path, 1 to 256 characters",
			Default: "/", Effect: "Path that is asked for with health-check-protocol http.",
			Honored: true, set: text(func(s *settings) *string { return &s.checkPath }, validPath),
		},
	}
}

// laterAnnotations are known, and answered instead of ignored.
func laterAnnotations() []Annotation {
	const later = "Not supported yet."
	names := []string{
		"ipv4-rdns", "ipv6-rdns", "private-ipv4", "private-subnet-ip-range",
		"http-cookie-name", "http-cookie-lifetime", "http-timeout-idle", "http-sticky-sessions",
		"http-redirect-http", "http-status-codes",
		"certificate-type", "http-certificates", "http-managed-certificate-name",
		"http-managed-certificate-domains", "http-managed-certificate-acme-staging",
		"health-check-http-domain", "health-check-http-validate-certificate",
	}
	rows := []Annotation{{Name: OwnPrefix + "adopt", Type: "text", Effect: later}}
	for _, name := range names {
		rows = append(rows, Annotation{Name: HetznerPrefix + name, Type: "text", Effect: later})
	}
	return rows
}
