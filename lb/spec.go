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

// Spec is a load balancer as it should be: every value resolved, nothing left to default.
type Spec struct {
	Owner Owner
	// Namespace and Service are the Service's names, by which others refer to it; empty for a group.
	Namespace, Service string
	// Shared is the group that the Service is in.
	Shared string
	// Sharers are the UIDs of the group's Services, oldest first, PortOwners those of the Services
	// that own ports, by these, and Deciders those of the Services whose annotations decide what the
	// load balancer has once, by these. Only for a group.
	Sharers    []string
	PortOwners map[int]string
	Deciders   map[string]string

	Name string
	Type string

	// Exactly one of Location and NetworkZone is set, or none where primary IPs say where it is.
	// They matter at creation; see [Immovable].
	Location    string
	NetworkZone string

	Algorithm Algorithm
	// Public says whether the load balancer has its public interface.
	Public bool
	// Network is the network it is attached to. 0: no opinion, an attachment made by others stays.
	Network int64
	// UsePrivateIP makes targets be reached at their address in Network.
	UsePrivateIP bool

	// PodTargets: the targets are the pods of the Service, and not nodes.
	PodTargets bool

	// PrivateIP and PrivateRange, if valid, say which address it has in Network.
	PrivateIP    netip.Addr
	PrivateRange netip.Prefix
	// Subnet, if valid, is where it gets its address when it is attached; it never moves one that
	// is.
	Subnet netip.Prefix
	// PrimaryIPv4 and PrimaryIPv6 are the public addresses that it is created with; see
	// [Spec.WithPrimaryIPs].
	PrimaryIPv4, PrimaryIPv6 PrimaryIPRef
	// GivenAddresses are the IDs and names of primary IPs that the configuration gives to the
	// Service.
	GivenAddresses []string
	// IPv4Name and IPv6Name are what reverse DNS says of the public addresses. Empty: what we said
	// is taken back.
	IPv4Name, IPv6Name string

	// AsFound: it is not known what the Service asks for, so that all stays as it is but for ports
	// and targets.
	AsFound bool

	Listeners []Listener // sorted by port
	// HealthCheckNodePort is where kube-proxy answers for the Service; 0 without policy Local.
	HealthCheckNodePort int
	// Certificates are IDs and names of certificates; [Spec.Resolve] puts them into the listeners
	// that have none of their own.
	Certificates []string
	// PortCertificates are those of single listeners, by their ports.
	PortCertificates map[int][]string
	// LabelledCertificates: only those whose label names the namespace may be used.
	LabelledCertificates bool
	// Managed is the certificate to obtain instead.
	Managed *ManagedCertificate
	Targets []Target // in the order of Target.Compare
	// Nodes are those that may be targets, whether or not they are: they know of a dedicated
	// server's addresses which belong together.
	Nodes []Node
	// Excluded are nodes on dedicated servers that shall be no targets: what has their addresses is
	// known to be theirs.
	Excluded []Node

	Takeover Takeover
	// ChecksKept is set by Against: the health checks stay as they were at the takeover.
	ChecksKept bool
	// Kept is set by Against: the settings that stay as they were at the takeover.
	Kept []string

	// Barred says why there may be no load balancer, and why one that there is must not come to
	// serve more.
	Barred []Note
	// Placeless says why none can be created; one that there is has its place.
	Placeless []Note

	// NodeSelector is a label selector in Kubernetes' syntax; empty selects every node.
	NodeSelector string
	Publish      Publish
	// Unserved are the Service's ports that no listener stands for.
	Unserved []Port
	// Served are the Service's ports that have one.
	Served []Port
}

// Publish says what the Service's status shows.
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
	return fmt.Sprintf("%s :%d%s every %s, timeout %s, %d tries", h.Protocol, h.Port, h.Path, h.Interval, h.Timeout, h.Retries)
}

// settling is what a verdict takes beyond the checks' own time.
const settling = 5 * time.Second

// Verdict is how long it takes at most until the check has found a target healthy or unhealthy.
func (h HealthCheck) Verdict() time.Duration {
	return time.Duration(h.Retries)*h.Interval + h.Timeout + settling
}
