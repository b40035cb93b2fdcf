package lb

import (
	"cmp"
	"net/netip"
	"regexp"
	"time"
)

// CheckMode is how nodes are checked under externalTrafficPolicy: Cluster unless an annotation
// overrides it.
type CheckMode string

const (
	// CheckKubeProxy checks kube-proxy's health port (HTTP 10256, /healthz), so that a draining
	// node becomes unhealthy.
	CheckKubeProxy CheckMode = "kube-proxy"
	// CheckNodePort connects to the node port, for clusters with a proxy that has no health port.
	CheckNodePort CheckMode = "node-port"
)

// Defaults apply to every Service unless its annotations override them. An empty field means the
// built-in default.
type Defaults struct {
	// Cluster marks everything that this cluster owns in the cloud. Required; a valid label value.
	Cluster string
	// Network is the ID of the load balancers' network. 0: attachments are not changed.
	Network int64
	// DedicatedRanges contain the dedicated servers' addresses in Network: its vSwitch subnets, or
	// its own range without one. Empty: unknown, any private address is accepted.
	DedicatedRanges []netip.Prefix

	Location    string // at most one of Location and NetworkZone
	NetworkZone string
	Type        string    // built in: lb11
	Algorithm   Algorithm // built in: round_robin

	// PrivateSubnet is the subnet of load balancers' addresses. Zero: the cloud chooses.
	PrivateSubnet netip.Prefix

	UsePrivateIP          bool
	DisablePrivateIngress bool
	DisablePublicNetwork  bool
	UsesProxyProtocol     bool
	DisableIPv6           bool

	CheckDefaults

	// Classless: Services without a loadBalancerClass are served too.
	Classless bool

	// OwnPools: nodes get IPv6 prefixes for pods from their server's own /64.
	OwnPools bool
	// PodTargetSources are further addresses from which load balancers may connect to pods.
	PodTargetSources []netip.Prefix

	Grants
}

// CheckDefaults configure health checks.
type CheckDefaults struct {
	HealthCheck         CheckMode     // built in: kube-proxy
	HealthCheckInterval time.Duration // built in: 10 s
	HealthCheckTimeout  time.Duration // built in: 15 s
	HealthCheckRetries  int           // built in: 3
}

// Grants are the project's resources that the configuration lets Services use.
type Grants struct {
	// Adoptable are load balancers that may be taken over without a label in the cloud.
	Adoptable []Adoptable
	// PrimaryIPs may be used without a label in the cloud.
	PrimaryIPs []GivenAddress
	// Shared are load balancers that Services of several namespaces may share.
	Shared []SharedName
	// Certificates limits the certificates that Services may reference. Built in: any.
	Certificates CertificateUse
}

// Limits of health checks, from the cloud's API.
const (
	minInterval, maxInterval = 3 * time.Second, 60 * time.Second
	minTimeout, maxTimeout   = 1 * time.Second, 60 * time.Second
	minRetries, maxRetries   = 1, 5
)

func (d Defaults) resolved() Defaults {
	d.Type = cmp.Or(d.Type, "lb11")
	d.Algorithm = cmp.Or(d.Algorithm, RoundRobin)
	d.HealthCheck = cmp.Or(d.HealthCheck, CheckKubeProxy)
	d.HealthCheckInterval = cmp.Or(d.HealthCheckInterval, 10*time.Second)
	d.HealthCheckTimeout = cmp.Or(d.HealthCheckTimeout, 15*time.Second)
	d.HealthCheckRetries = cmp.Or(d.HealthCheckRetries, 3)
	d.Certificates = cmp.Or(d.Certificates, CertificatesAny)
	return d
}

func wholeSeconds(d, low, high time.Duration) bool {
	return d >= low && d <= high && d%time.Second == 0
}

// labelValue reports whether s is a valid, non-empty label value in the cloud and in Kubernetes.
var labelValue = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9._-]{0,61}[a-zA-Z0-9])?$`).MatchString
