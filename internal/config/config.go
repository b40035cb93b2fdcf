package config

import (
	"net/netip"
	"time"
)

// Config is the whole validated configuration.
type Config struct {
	// ClusterName tells clusters in one project apart; a valid label value.
	ClusterName string
	// Endpoint is the base URL of the Hetzner Cloud API with its version
	// path and without a trailing slash.
	Endpoint string
	// Network is the ID or the name of the private network; empty: none.
	Network string
	Token   TokenSource
	// InstancesAddressFamily says which external addresses a Node gets.
	InstancesAddressFamily AddressFamily
	IPAM                   IPAM
	Routes                 Routes
	LoadBalancers          LoadBalancers
}

// AddressFamily selects IPv4, IPv6 or both.
type AddressFamily string

// The address families of instances.
const (
	IPv4      AddressFamily = "ipv4"
	IPv6      AddressFamily = "ipv6"
	DualStack AddressFamily = "dualstack"
)

// IPAM configures the allocation of podCIDRs.
type IPAM struct {
	// Enabled: podCIDRs are allocated (--allocate-node-cidrs). The other
	// fields are valid either way.
	Enabled bool
	// Pools has at most one pool of each family, in the order of
	// --cluster-cidr. At least one when Enabled or when routes are.
	Pools []Pool
	// ServiceRanges overlap no pool; at most one of each family.
	ServiceRanges []netip.Prefix
	// Exclude is never handed out; it leaves room in every pool.
	Exclude []netip.Prefix
	// QPS limits the allocator's requests per second to the API server.
	QPS int
}

// Pool is a cluster CIDR and the length of the prefixes carved from it.
type Pool struct {
	Prefix   netip.Prefix
	NodeMask int
}

// Routes configures the routes in the cloud's network.
type Routes struct {
	// Enabled implies a Network and an IPv4 pool within RFC 1918.
	Enabled bool
	// Limit is the number of routes that the network takes; Reserve, always
	// less, are left for others.
	Limit, Reserve int
	// MaxDeletionsPercent of our routes, 1 to 100, may be deleted within one
	// ReconciliationPeriod.
	MaxDeletionsPercent int
	// ReconciliationPeriod is the time between passes that no event caused.
	ReconciliationPeriod time.Duration
}

// HealthCheck says what a load balancer asks to learn whether a node can
// serve a Service with externalTrafficPolicy Cluster.
type HealthCheck string

// The health checks for externalTrafficPolicy Cluster.
const (
	HealthCheckKubeProxy HealthCheck = "kube-proxy"
	HealthCheckNodePort  HealthCheck = "node-port"
)

// Algorithm distributes connections over targets.
type Algorithm string

// The algorithms of the Hetzner Cloud API.
const (
	RoundRobin       Algorithm = "round_robin"
	LeastConnections Algorithm = "least_connections"
)

// LoadBalancers holds the defaults that a Service's annotations may override.
type LoadBalancers struct {
	Enabled bool
	// Location and NetworkZone: at most one is set. With neither, a Service
	// must name one to get a load balancer.
	Location, NetworkZone string
	Type                  string
	HealthCheck           HealthCheck
	// Classless: Services without a loadBalancerClass are served too.
	Classless bool
	// UsePrivateIP and DisablePublicNetwork imply a Network.
	UsePrivateIP          bool
	DisablePublicNetwork  bool
	DisableIPv6           bool
	DisablePrivateIngress bool
	Algorithm             Algorithm
	UsesProxyProtocol     bool
	// HealthCheckInterval (3 to 60 s) and HealthCheckTimeout (1 to 60 s) are
	// whole seconds.
	HealthCheckInterval, HealthCheckTimeout time.Duration
	HealthCheckRetries                      int
}
