package lb

import (
	"fmt"
	"net/netip"
	"time"
)

// Algorithm is how a load balancer chooses among healthy targets.
type Algorithm string

// The cloud's algorithms.
const (
	RoundRobin       Algorithm = "round_robin"
	LeastConnections Algorithm = "least_connections"
)

// Spec is a load balancer as it should be: every value resolved, nothing left to default. Its parts
// are named after what decides their fields.
type Spec struct {
	Owner Owner
	Subject
	Sharing

	Name string
	Type string
	// Exactly one of Location and NetworkZone is set, or none where primary IPs determine the
	// place. They matter at creation; see [Immovable].
	Location    string
	NetworkZone string
	Algorithm   Algorithm
	// Public: the load balancer has its public interface.
	Public bool
	// Network is the network it is attached to. 0: an attachment made by others is kept.
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

// Blockers are what keeps the Service from a load balancer.
type Blockers struct {
	// Barred are the reasons why there may be none, and why an existing one must not serve more.
	Barred []Note
	// Placeless are the reasons why none can be created; an existing one has its place.
	Placeless []Note
}

// Subject is the Service that the load balancer is for; empty for a group.
type Subject struct {
	Namespace, Service string
	// HealthCheckNodePort is where kube-proxy reports endpoints of the Service; 0 without policy
	// Local.
	HealthCheckNodePort int
	// Served are the Service's ports that have a listener, Unserved the others.
	Served, Unserved []Port
}

// Sharing is how Services share the load balancer. All but Shared are set for a group only.
type Sharing struct {
	// Shared is the group of the Service.
	Shared string
	// Sharers are the UIDs of the group's Services, oldest first.
	Sharers []string
	// PortOwners are the UIDs of the Services that own ports.
	PortOwners map[int]string
	// Deciders are the UIDs of the Services whose annotations decide the settings that a load
	// balancer has once, by annotation.
	Deciders map[string]string
}

// Attachment is the address in the network.
type Attachment struct {
	// PrivateIP and PrivateRange, if valid, are the address and the subnet that are requested.
	PrivateIP    netip.Addr
	PrivateRange netip.Prefix
	// Subnet, if valid, is where a new attachment gets its address. It never moves an existing one.
	Subnet netip.Prefix
}

// PrimaryIPs are the public addresses that the load balancer is created with; see
// [Spec.WithPrimaryIPs].
type PrimaryIPs struct {
	PrimaryIPv4, PrimaryIPv6 PrimaryIPRef
	// GivenAddresses are the IDs and names of primary IPs that the configuration gives to the
	// Service.
	GivenAddresses []string
}

// ReverseDNS are the names of the public addresses. Empty in a [Spec]: a name that was set by this
// cluster is reset.
type ReverseDNS struct{ IPv4Name, IPv6Name string }

// CertificateRefs are the certificates that listeners need, before [Spec.Resolve] puts their IDs
// into the listeners.
type CertificateRefs struct {
	// Certificates are the IDs and names of those for listeners that have none of their own.
	Certificates []string
	// PortCertificates are those of single listeners, by port.
	PortCertificates map[int][]string
	// LabelledCertificates: only those whose label names the namespace may be used.
	LabelledCertificates bool
	// Managed is the certificate to obtain instead of Certificates.
	Managed *ManagedCertificate
}

// Targeting is what receives the traffic.
type Targeting struct {
	// PodTargets: the targets are the pods of the Service, and not nodes.
	PodTargets bool
	// UsePrivateIP: targets are reached at their address in the network.
	UsePrivateIP bool
	// NodeSelector is a label selector in Kubernetes' syntax; empty selects every node.
	NodeSelector string
	Targets      []Target // in the order of Target.Compare
	// Nodes are those that may be targets. They show which addresses of a dedicated server belong
	// together.
	Nodes []Node
	// Excluded are nodes on dedicated servers that must not be targets: a target with one of their
	// addresses is known to be theirs.
	Excluded []Node
}

// Adopted is what stays as it was found.
type Adopted struct {
	// AsFound: the Service's wishes are unknown, so that only ports and targets change.
	AsFound bool
	// ChecksKept: the health checks are those from before the takeover. Set by [Spec.Against].
	ChecksKept bool
	// Kept are the names of settings from before the takeover. Set by [Spec.Against].
	Kept []string
}

// Publish is what the Service's status shows.
type Publish struct {
	Hostname string // instead of addresses
	IPv6     bool
	// IPv6First: the Service prefers that family.
	IPv6First bool
	Private   bool // also the address in the network
	Proxy     bool // clients inside the cluster must go through the load balancer
}

// Listener is a port of the load balancer ("service" in the cloud's API) and where it leads.
type Listener struct {
	Port            int
	DestinationPort int
	Protocol        string
	ProxyProtocol   bool
	HTTP            HTTP
	Check           HealthCheck
}

func byPort(a, b Listener) int { return a.Port - b.Port }

// Protocols of listeners and health checks; a check is never https, see HealthCheck.TLS.
const (
	ProtocolTCP   = "tcp"
	ProtocolHTTP  = "http"
	ProtocolHTTPS = "https"
)

// DefaultStatusCodes are the answers that an HTTP health check takes as healthy, comma-separated.
const DefaultStatusCodes = "2??,3??"

// HealthCheck is how a listener judges its targets. All fields below Retries are empty with
// protocol tcp.
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
	// No Spec sets Response. It is here so that a change made by hand is a difference.
	Response string
}

func (h HealthCheck) String() string {
	return fmt.Sprintf("%s :%d%s every %s, timeout %s, %d tries",
		h.Protocol, h.Port, h.Path, h.Interval, h.Timeout, h.Retries)
}

// settling is what a verdict takes beyond the checks' own time.
const settling = 5 * time.Second

// Verdict is how long it takes at most until the check has found a target healthy or unhealthy.
func (h HealthCheck) Verdict() time.Duration {
	return time.Duration(h.Retries)*h.Interval + h.Timeout + settling
}
