package config

import (
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/underlay-ccm/underlay/lb"
)

// Config is the whole validated configuration.
type Config struct {
	Provider Provider
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
	Families               Families
	Routes                 Routes
	LoadBalancers          LoadBalancers
	VSwitch                VSwitch
	// Addresses are those that nodes hold for Services.
	Addresses Addresses
	// Robot is how dedicated servers are asked about; not Enabled with Metal.
	Robot Robot
	// Inventory are the machines that are known beforehand. Each has a Number
	// exactly if the Provider is Hcloud: there they are dedicated servers.
	Inventory []Machine

	// origins are where settings were given, by their fields.
	origins map[string]place
}

// Given reports whether the setting was given, and is not just its default.
func (c Config) Given(key string) bool {
	_, given := c.origins[key]
	return given
}

// Wrong is an error about a setting that was well-formed, and that something
// outside the configuration contradicts. It names the place where the setting was
// given, so key is that of the file, wherever it was given.
func (c Config) Wrong(key, value, problem, remedy string, cause error) *Error {
	at, known := c.origins[key]
	if !known {
		at.field = key
	}
	return &Error{Field: at.field, Line: at.line, Value: value, Problem: problem, Remedy: remedy, Cause: cause}
}

// Provider is where machines come from.
type Provider string

// The providers. With Metal there is no cloud: Endpoint, Network and Token are
// of no use, Routes and LoadBalancers are not Enabled, and no pool is Own.
const (
	Hcloud Provider = "hcloud"
	Metal  Provider = "metal"
)

// Machine is one of the inventory.
type Machine struct {
	// Name is the Node's, and unique.
	Name string
	// Number is the dedicated server's, and unique.
	Number int
	// Addresses are its own alone; none: those that its kubelet reports.
	Addresses []netip.Addr
	// Zone, Region and Type are label values, or empty.
	Zone, Region, Type string
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
	// Pools are those of the file, or one for each --cluster-cidr. Their order
	// is that in which they are used, and of the families in podCIDRs. None
	// overlaps another. At least one when Enabled or when routes are.
	Pools []Pool
	// ServiceRanges overlap no pool; at most one of each family.
	ServiceRanges []netip.Prefix
	// Exclude is never handed out; it leaves room in every pool with a Prefix.
	Exclude []netip.Prefix
	// Quarantine is how long at least the prefixes of a Node that is gone are
	// kept from others; a minute or more.
	Quarantine time.Duration
	// QPS limits the allocator's requests per second to the API server.
	QPS int
	// Shards: the stored ledger may be spread over several ConfigMaps. Otherwise what is spread
	// is brought back into one.
	Shards bool
}

// Pool is what node prefixes are carved from.
type Pool struct {
	// Name is unique: at most 63 lower-case letters, digits and dashes.
	Name string
	// Prefix is carved into node prefixes: at most 2^16 of them for IPv4, 2^48
	// for IPv6. The zero Prefix where Own.
	Prefix netip.Prefix
	// NodeMask is the length of a node prefix; 65 to 126 where Own.
	NodeMask int
	// Own: node prefixes come from each server's own IPv6 /64.
	Own bool
	// VSwitch: Prefix is IPv4 and lies within VSwitch.Subnet. Dedicated servers
	// have node prefixes of it, and no routes lead to them. There is a Selector.
	VSwitch bool
	// Draining: nothing new is handed out.
	Draining bool
	// Selector picks the Nodes that the pool is for; nil: all.
	Selector labels.Selector
	// Field is the setting that the range stands in, such as pools[1].cidr, for
	// errors found later.
	Field string
}

// VSwitch is where dedicated servers meet the cloud's network.
type VSwitch struct {
	// Subnet is that of the Network which is coupled with a vSwitch: IPv4, within
	// RFC 1918. The zero Prefix: none, and then no pool is VSwitch.
	Subnet netip.Prefix
	// ExposeRoutes: have the network tell its routes to the vSwitch, if it
	// doesn't.
	ExposeRoutes bool
}

// Gateway is the vSwitch's way into the network: the subnet's first address.
// The zero Addr without a subnet.
func (v VSwitch) Gateway() netip.Addr {
	if !v.Subnet.IsValid() {
		return netip.Addr{}
	}
	return v.Subnet.Masked().Addr().Next()
}

// Routing says what brings packets to the pods of another node.
type Routing string

// The ways of routing.
const (
	RoutedByCloud  Routing = "cloud"  // routes in the cloud's network
	RoutedNatively Routing = "native" // the provider routes each server's own prefix
	RoutedByNodes  Routing = "node"   // kernel routes on every node, by its agent
	Unrouted       Routing = "none"   // nothing of Underlay's
)

// Families says how each address family is routed.
type Families struct {
	// IPv4 is RoutedByCloud or RoutedByNodes; Routes.Enabled implies the former.
	IPv4 Routing
	// IPv6 is RoutedNatively, RoutedByNodes or Unrouted.
	IPv6 Routing
}

// Routes configures the routes in the cloud's network.
type Routes struct {
	// Enabled implies a Network, an IPv4 pool, and that all of those lie within
	// RFC 1918.
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

// LoadBalancers holds the defaults that a Service's annotations may override; which cluster and
// network theirs are stands elsewhere. Of Location and NetworkZone at most one is set; with neither,
// a Service must name one to get a load balancer. UsePrivateIP and DisablePublicNetwork imply a
// Network.
type LoadBalancers struct {
	Enabled bool
	lb.Defaults
}
