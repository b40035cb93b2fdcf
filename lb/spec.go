package lb

import (
	"fmt"
	"net/netip"
	"time"
)

// Algorithm is how a load balancer chooses a healthy target.
type Algorithm string

const (
	RoundRobin       Algorithm = "round_robin"
	LeastConnections Algorithm = "least_connections"
)

// Spec is the desired load balancer with all defaults resolved; its parts group fields by subject.
type Spec struct {
	Owner Owner
	Subject
	Sharing

	Name string
	Type string
	// At most one of Location and NetworkZone is set, and exactly one unless primary IPs determine
	// the location. They apply to the creation only; see [Immovable].
	Location    string
	NetworkZone string
	Algorithm   Algorithm
	Public      bool
	// Network is the ID of the network to attach to. 0: an existing attachment is kept.
	Network int64
	Attachment
	PrimaryIPs
	ReverseDNS

	Listeners []Listener // sorted by port
	CertificateRefs
	Targeting

	Takeover Takeover
	Adopted
	Publish Publish
	Blockers
}

// Blockers are the reasons why the Service cannot have a load balancer.
type Blockers struct {
	// Barred: no load balancer may be created, and an existing one must not serve more than now.
	Barred []Note
	// Placeless: no load balancer can be created; an existing one is not affected.
	Placeless []Note
}

// Subject is the Service that the load balancer is for; empty for a group.
type Subject struct {
	Namespace, Service string
	// HealthCheckNodePort is where kube-proxy reports endpoints; 0 without policy Local.
	HealthCheckNodePort int
}

// Sharing is how Services share the load balancer. All but Shared are set only for a group.
type Sharing struct {
	// Shared is the group of the Service.
	Shared string
	// Sharers are the UIDs of the group's Services, oldest first.
	Sharers []string
	// PortOwners are the UIDs of the Services that own ports, by port.
	PortOwners map[int]string
	// Deciders are, by annotation, the UIDs of the Services that decide settings.
	Deciders map[string]string
}

// Attachment is the address in the network.
type Attachment struct {
	// PrivateIP and PrivateRange are the requested address and subnet, if valid.
	PrivateIP    netip.Addr
	PrivateRange netip.Prefix
	// Subnet, if valid, is the subnet of new attachments. It never moves an existing attachment.
	Subnet netip.Prefix
}

// PrimaryIPs are the public addresses that the load balancer is created with; see
// [Spec.WithPrimaryIPs].
type PrimaryIPs struct {
	PrimaryIPv4, PrimaryIPv6 PrimaryIPRef
	// GivenAddresses are IDs and names of primary IPs that the configuration gives the Service.
	GivenAddresses []string
}

// ReverseDNS are the names of the public addresses. Empty in a [Spec]: a name that this cluster
// set is reset.
type ReverseDNS struct{ IPv4Name, IPv6Name string }

// CertificateRefs are the certificates of listeners, before [Spec.Resolve] resolves their IDs.
type CertificateRefs struct {
	// Certificates are IDs and names, for listeners without certificates of their own.
	Certificates []string
	// PortCertificates are IDs and names for single listeners, by port.
	PortCertificates map[int][]string
	// LabelledCertificates: only certificates with a label for the namespace may be used.
	LabelledCertificates bool
	// Managed is the certificate to obtain instead of Certificates.
	Managed *ManagedCertificate
}

// Targeting is how targets are chosen and reached.
type Targeting struct {
	PodTargets bool
	// UsePrivateIP: targets are reached at their address in the network.
	UsePrivateIP bool
	// NodeSelector is a label selector in Kubernetes' syntax; empty selects every node.
	NodeSelector string
	Targets      []Target // sorted by Target.Compare
	// Nodes may be targets. They map the two addresses of a dedicated server to each other.
	Nodes []Node
	// Excluded are nodes on dedicated servers that must not be targets, which identifies targets
	// with their addresses.
	Excluded []Node
}

// Adopted are settings that are kept from the existing load balancer.
type Adopted struct {
	// AsFound: the Service's settings are unknown or unused, so only ports and targets change.
	AsFound bool
	// ChecksKept: the health checks from before the takeover are kept. Set by [Spec.Against].
	ChecksKept bool
	// Kept are the settings that are kept from before the takeover. Set by [Spec.Against].
	Kept []string
}

// Publish are the settings of the Service's status.
type Publish struct {
	Hostname  string // instead of addresses
	IPv6      bool
	IPv6First bool
	Private   bool // also the address in the network
	Proxy     bool // clients inside the cluster must connect through the load balancer
}

// Listener is a port of the load balancer ("service" in the cloud's API) and its destination.
type Listener struct {
	Port            int
	DestinationPort int
	Protocol        string
	ProxyProtocol   bool
	HTTP            HTTP
	Check           HealthCheck
}

func byPort(a, b Listener) int { return a.Port - b.Port }

// Protocols of listeners and health checks; a check over TLS is http with HealthCheck.TLS.
const (
	ProtocolTCP   = "tcp"
	ProtocolHTTP  = "http"
	ProtocolHTTPS = "https"
)

// DefaultStatusCodes are the status codes that an HTTP health check accepts, comma-separated.
const DefaultStatusCodes = "2??,3??"

// HealthCheck is a listener's health check. All fields below Retries are empty with protocol tcp.
type HealthCheck struct {
	Protocol string
	Port     int
	Interval time.Duration // whole seconds, 3–60
	Timeout  time.Duration // whole seconds, 1–60
	Retries  int           // 1–5

	Path        string
	StatusCodes string // comma-separated
	Domain      string
	TLS         bool
	// Response is never set by a Spec, so that a manual change of it is a difference.
	Response string
}

func (h HealthCheck) String() string {
	return fmt.Sprintf("%s :%d%s every %s, timeout %s, %d tries",
		h.Protocol, h.Port, h.Path, h.Interval, h.Timeout, h.Retries)
}

// settling is the time of a verdict in addition to the checks.
const settling = 5 * time.Second

// Verdict is the maximum time until a check finds a target healthy or unhealthy.
func (h HealthCheck) Verdict() time.Duration {
	return time.Duration(h.Retries)*h.Interval + h.Timeout + settling
}
