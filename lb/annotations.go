package lb

import (
	"net/netip"
	"slices"
)

const (
	// HetznerPrefix is the prefix of the Hetzner cloud controller manager's annotations, which
	// keep their meaning.
	HetznerPrefix = "load-balancer.hetzner.cloud/"
	OwnPrefix     = "underlay.dev/"
)

const (
	AnnotationName         = HetznerPrefix + "name"
	AnnotationType         = HetznerPrefix + "type"
	AnnotationLocation     = HetznerPrefix + "location"
	AnnotationNetworkZone  = HetznerPrefix + "network-zone"
	AnnotationNodeSelector = HetznerPrefix + "node-selector"

	annotationAlgorithm      = HetznerPrefix + "algorithm-type"
	annotationAdopt          = OwnPrefix + "adopt"
	annotationElsewhere      = OwnPrefix + "source-ranges-enforced-elsewhere"
	annotationProtocol       = HetznerPrefix + "protocol"
	annotationRedirect       = HetznerPrefix + "http-redirect-http"
	annotationCertType       = HetznerPrefix + "certificate-type"
	annotationCertificates   = HetznerPrefix + "http-certificates"
	annotationDomains        = HetznerPrefix + "http-managed-certificate-domains"
	annotationPrivateIPv4    = HetznerPrefix + "private-ipv4"
	annotationPrivateRange   = HetznerPrefix + "private-subnet-ip-range"
	annotationCheckProtocol  = HetznerPrefix + "health-check-protocol"
	annotationPublicOff      = HetznerPrefix + "disable-public-network"
	annotationPrivateIP      = HetznerPrefix + "use-private-ip"
	annotationIPv6Off        = HetznerPrefix + "ipv6-disabled"
	annotationCheckInterval  = HetznerPrefix + "health-check-interval"
	annotationCheckTimeout   = HetznerPrefix + "health-check-timeout"
	annotationCheckRetries   = HetznerPrefix + "health-check-retries"
	annotationCheckPort      = HetznerPrefix + "health-check-port"
	annotationOwnHealthCheck = OwnPrefix + "health-check"
)

// Annotation is a row of the table of annotations.
type Annotation struct {
	Name    string // with its prefix
	Type    string // text, choice, boolean, integer, duration, list or JSON
	Range   string
	Default string
	Effect  string

	// set stores a valid value in the settings; its error describes a valid value.
	set  func(s *settings, value string) error
	idle idleRule // nil: the annotation always has an effect
	// Option is the same setting for a single port in [AnnotationPorts]: its JSON keys, joined by
	// dots. Empty: there is no such option.
	Option string
}

func (a Annotation) atPort(option string) Annotation {
	a.Option = option
	return a
}

// idleRule returns why an annotation or an option of a port has no effect beside the other
// settings, and how to change that; both are empty if it has an effect.
type idleRule func(settings) (why, remedy string)

// Annotations returns all annotations, sorted by subject.
func Annotations() []Annotation {
	return slices.Concat(generalAnnotations(), networkAnnotations(), primaryIPAnnotations(), protocolAnnotations(), certificateAnnotations(), checkAnnotations())
}

func generalAnnotations() []Annotation {
	return []Annotation{
		text(AnnotationName, "1 to 128 characters, no space at either end", "a name made of the Service's UID",
			"Name of the load balancer, unique in the project.",
			func(s *settings) *string { return &s.Name }, validName, nil),
		text(AnnotationType, "lb11, lb21, lb31, or another type that the cloud offers", "lb11",
			"How many ports and nodes fit: 5 and 25, 15 and 75, 30 and 150.",
			func(s *settings) *string { return &s.Type }, validIdentifier, nil),
		text(AnnotationLocation, "a location: fsn1, nbg1, hel1, ash, hil, sin", "none",
			"Where the load balancer is created. Excludes network-zone; one of the two is needed.",
			func(s *settings) *string { return &s.Location }, validIdentifier, nil),
		text(AnnotationNetworkZone,
			"a network zone: eu-central, us-east, us-west, ap-southeast", "none",
			"Lets the cloud choose a location in the zone. Excludes location.",
			func(s *settings) *string { return &s.NetworkZone }, validIdentifier, nil),
		choice(annotationAlgorithm, "round_robin", "How a healthy node is chosen for a connection.",
			func(s *settings) *Algorithm { return &s.Algorithm },
			nil, RoundRobin, LeastConnections),
		text(HetznerPrefix+"hostname", "a DNS name", "none",
			"Shown in the Service's status instead of addresses.",
			func(s *settings) *string { return &s.Publish.Hostname }, validHostname, nil),
		text(AnnotationNodeSelector, "a label selector", "all nodes",
			"Only nodes with matching labels become targets, on cloud servers and on dedicated "+
				"ones. Without effect where pods are the targets.",
			func(s *settings) *string { return &s.NodeSelector },
			func(string) error { return nil }, withPods),
		// WantsPods reads it before Parse.
		choice(AnnotationTargets, "nodes",
			"The targets of the load balancer: the nodes, at node ports, or the pods "+
				"themselves, at their IPv6 addresses. Pods need an IPv6 pool with source: node, "+
				"and a Service with IPv6 among its families; where no pod has such an address, "+
				"nodes are the targets.",
			func(*settings) *string { return new(string) }, nil, targetsNodes, targetsPods),
		text(HetznerPrefix+"ipv4-rdns", "a DNS name", "the cloud's",
			"Reverse DNS of the public IPv4 address.",
			func(s *settings) *string { return &s.IPv4Name }, validHostname, notPublic),
		text(HetznerPrefix+"ipv6-rdns", "a DNS name", "none",
			"Reverse DNS of the public IPv6 address.",
			func(s *settings) *string { return &s.IPv6Name }, validHostname, notPublic),
		choice(OwnPrefix+"ip-mode", "Proxy with the PROXY protocol, http and https, else VIP",
			"Whether pods of the cluster reach the Service behind the load balancer's address "+
				"directly (VIP) or through the load balancer (Proxy).",
			func(s *settings) *string { return &s.proxyMode }, nil, modeVIP, modeProxy),
		boolean(annotationAdopt,
			"Takes over the load balancer with this name, if it carries no owner's label and the "+
				"project's side agrees: by labels in the cloud, or by loadBalancers.adoptable in "+
				"the configuration. It is deleted with the Service from then on. Its health "+
				"checks stay until health-check says otherwise.",
			func(s *settings) *bool { return &s.Takeover.Adopt }, nil),
		text(AnnotationShared, "a DNS label, such as edge", "none",
			"Shares one load balancer with all Services of the namespace that set the same, or of "+
				"the namespaces that loadBalancers.shared in the configuration lists with the "+
				"name. A port belongs to the oldest Service that requests it; the properties that a load balancer has "+
				"once is decided by the oldest that sets it; targets are the nodes that all "+
				"admit. Excludes adopt.",
			func(s *settings) *string { return &s.Shared }, validDNSLabel, nil),
		boolean(annotationElsewhere,
			"Confirms that something else enforces spec.loadBalancerSourceRanges. The cloud's "+
				"load balancers cannot, so without this such a Service gets none.",
			func(s *settings) *bool { return &s.elsewhere }, nil),
	}
}

func withPods(s settings) (why, remedy string) {
	if s.PodTargets {
		return "pods are the targets, wherever they run", "set " + AnnotationTargets + " to nodes"
	}
	return "", ""
}

func notPublic(s settings) (why, remedy string) {
	if s.publicOff {
		return "the load balancer has no public interface", "set " + annotationPublicOff + " to false"
	}
	return "", ""
}

func networkAnnotations() []Annotation {
	return []Annotation{
		boolean(annotationPrivateIP,
			"Reaches nodes at their address in the configured network: dedicated servers at the "+
				"InternalIP of their Node in the network's vSwitch subnet, and without this at "+
				"the Node's public address. A load balancer that was taken over goes on to reach "+
				"them as it did until this is set.",
			func(s *settings) *bool { return &s.UsePrivateIP }, nil),
		boolean(HetznerPrefix+"disable-private-ingress",
			"Keeps the load balancer's address in the network out of the Service's status.",
			func(s *settings) *bool { return &s.privateOff }, nil),
		boolean(annotationPublicOff,
			"Switches the load balancer's public interface off. Needs use-private-ip.",
			func(s *settings) *bool { return &s.publicOff }, nil),
		boolean(annotationIPv6Off,
			"Keeps the load balancer's IPv6 address out of the Service's status. With false, it "+
				"is shown also for a Service whose ipFamilies are IPv4 alone.",
			func(s *settings) *bool { return &s.Takeover.NoIPv6 }, nil),
		row(annotationPrivateIPv4, "address",
			"an unused IPv4 address of the network", "the cloud's choice",
			"Address of the load balancer in the network. Another one than it has takes it out of "+
				"the network for seconds; removing the annotation leaves the address.",
			func(s *settings) *netip.Addr { return &s.PrivateIP }, privateAddress, noNetwork),
		row(annotationPrivateRange, "prefix", "the IPv4 range of a subnet of the network", "none",
			"Subnet in which the load balancer gets its address. Another one than it is in takes "+
				"it out of the network for seconds; removing the annotation leaves the address.",
			func(s *settings) *netip.Prefix { return &s.PrivateRange }, privateSubnet, noNetwork),
	}
}

func noNetwork(s settings) (why, remedy string) {
	if s.Network == 0 {
		return "no network is configured", "configure the network"
	}
	return "", ""
}
