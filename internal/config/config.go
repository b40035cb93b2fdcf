package config

import (
	"cmp"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/underlay-ccm/underlay/lb"
	"github.com/underlay-ccm/underlay/routes"
)

// Config is the complete, validated configuration.
type Config struct {
	Provider Provider
	// ClusterName distinguishes clusters in one project; a valid label value.
	ClusterName string
	// Endpoint is the Hetzner Cloud API's base URL with version path, without trailing slash.
	Endpoint string
	// Network is the ID or name of the private network; empty without a network.
	Network string
	Token   Secret
	// InstancesAddressFamily selects the external addresses of a Node.
	InstancesAddressFamily AddressFamily
	IPAM                   IPAM
	// Families has IPv4 ByCloud, as Routes.Enabled implies, or ByNodes; IPv6 is not ByCloud.
	Families      routes.Modes
	Routes        Routes
	WireGuard     WireGuard
	LoadBalancers LoadBalancers
	VSwitch       VSwitch
	Addresses     Addresses
	// Robot is not Enabled with Metal.
	Robot Robot
	// Inventory lists machines that are configured in advance. Each has a Number if and only if
	// the Provider is Hcloud, where they are dedicated servers.
	Inventory []Machine
	// NetworkPolicy makes agents enforce NetworkPolicies.
	NetworkPolicy bool
	// NetworkPolicyLog is the group of nflog to which they log dropped packets; 0 is none.
	NetworkPolicyLog uint16

	// origins maps each given setting to the flag, key or variable that gave it.
	origins map[string]string
}

// Given reports whether the setting was given explicitly, not by its default.
func (c Config) Given(key string) bool {
	_, given := c.origins[key]
	return given
}

// Wrong returns an error about a well-formed setting that contradicts something outside of the
// configuration. key is its key in the file; the error names the place where it was given.
func (c Config) Wrong(key, value, problem, remedy string, cause error) *Error {
	return &Error{
		Field: cmp.Or(c.origins[key], key), Value: value, Problem: problem, Remedy: remedy, Cause: cause,
	}
}

// Provider is the source of machines.
type Provider string

// The providers. With Metal there is no cloud: Endpoint, Network and Token are unused, Routes
// and LoadBalancers are not Enabled, and no pool is Own.
const (
	Hcloud Provider = "hcloud"
	Metal  Provider = "metal"
)

// Machine is an entry of the inventory.
type Machine struct {
	// Name is the unique name of the Node.
	Name string
	// Number is the unique number of the dedicated server at Robot.
	Number int
	// Addresses belong to no other machine; if empty, the kubelet's are used.
	Addresses []netip.Addr
	// Zone, Region and Type are label values or empty.
	Zone, Region, Type string
}

// Robot configures the web service of dedicated servers.
type Robot struct {
	Enabled bool
	// Endpoint is the base URL without a trailing slash.
	Endpoint       string
	User, Password Secret
	// ForwardInternalIPs takes private addresses from the kubelets if there is no network.
	ForwardInternalIPs bool
}

// AddressFamily selects IPv4, IPv6 or both.
type AddressFamily string

const (
	IPv4      AddressFamily = "ipv4"
	IPv6      AddressFamily = "ipv6"
	DualStack AddressFamily = "dualstack"
)

// IPAM configures the allocation of podCIDRs.
type IPAM struct {
	// Enabled is --allocate-node-cidrs. The other fields are valid either way.
	Enabled bool
	// Pools are those of the file, or one per prefix of --cluster-cidr, in the order in which
	// they are used and in which podCIDRs list the families. They don't overlap. There is at
	// least one if IPAM or Routes are Enabled.
	Pools []Pool
	// ServiceRanges overlap no pool; at most one per family.
	ServiceRanges []netip.Prefix
	// Exclude is never allocated; it leaves room in every pool with a Prefix.
	Exclude []netip.Prefix
	// Quarantine is the minimum time for which the prefixes of a deleted Node are not allocated
	// again; at least one minute.
	Quarantine time.Duration
	// QPS limits the allocator's requests per second to the API server.
	QPS int
}

// Pool is a range from which node prefixes are allocated.
type Pool struct {
	// Name is unique: at most 63 lower-case letters, digits and dashes.
	Name string
	// Prefix contains at most 2^16 node prefixes for IPv4, 2^48 for IPv6; zero if Own.
	Prefix netip.Prefix
	// NodeMask is the length of a node prefix; 65 to 126 if Own.
	NodeMask int
	// Own takes node prefixes from each server's own IPv6 /64.
	Own bool
	// VSwitch means that Prefix is IPv4 and lies within VSwitch.Subnet: dedicated servers have
	// node prefixes of it, and no routes exist for them. Implies a Selector.
	VSwitch bool
	// Draining stops allocation from the pool.
	Draining bool
	// Selector selects the Nodes that may use the pool; nil selects all.
	Selector labels.Selector
	// Field is the setting that holds the range, such as pools[1].cidr, for errors found later.
	Field string
}

// VSwitch configures the coupling of the vSwitch of dedicated servers with the cloud's network.
type VSwitch struct {
	// Subnet is the subnet of the Network that is coupled with a vSwitch: IPv4, within RFC 1918.
	// If it is the zero Prefix, no pool is VSwitch.
	Subnet netip.Prefix
	// ExposeRoutes makes the network announce its routes to the vSwitch.
	ExposeRoutes bool
}

// Gateway returns the subnet's first address, or the zero Addr without a subnet.
func (v VSwitch) Gateway() netip.Addr {
	if !v.Subnet.IsValid() {
		return netip.Addr{}
	}
	return v.Subnet.Masked().Addr().Next()
}

// Routes configures the routes in the cloud's network.
type Routes struct {
	// Enabled implies a Network and an IPv4 pool, and that IPv4 pools lie within RFC 1918.
	Enabled bool
	// Limit is the network's maximum number of routes, of which Reserve, always less, stay free.
	Limit, Reserve int
	// MaxDeletionsPercent limits deletions of our routes per ReconciliationPeriod, 1 to 100.
	MaxDeletionsPercent int
	// ReconciliationPeriod is the time between periodic passes.
	ReconciliationPeriod time.Duration
}

// WireGuardMode selects the nodes that tunnels connect.
type WireGuardMode string

const (
	NoWireGuard       WireGuardMode = "never"
	WireGuardOverflow WireGuardMode = "overflow" // nodes without a route in the cloud's network
	WireGuardAlways   WireGuardMode = "always"   // all nodes
)

// WireGuard configures tunnels between nodes.
type WireGuard struct {
	Mode WireGuardMode
	// Phase applies to WireGuardAlways.
	Phase routes.TunnelPhase
	Port  int // UDP
	// PresharedKeyFile is a path on the nodes, which the agents read; empty: no pre-shared key.
	PresharedKeyFile string
}

// PresharedKeyFile is the key of WireGuard.PresharedKeyFile in the file.
const PresharedKeyFile = "wireguardPresharedKeyFile"

// Enabled reports whether tunnels connect any nodes.
func (w WireGuard) Enabled() bool { return w.Mode != NoWireGuard && w.Mode != "" }

// Required reports whether pods and nodes communicate through tunnels only.
func (w WireGuard) Required() bool {
	return w.Mode == WireGuardAlways && w.Phase == routes.RequireTunnels
}

// LoadBalancers holds the defaults that a Service's annotations may override; Config has the
// cluster and network. At most one of Location and NetworkZone is set; with neither, a Service
// must name one. UsePrivateIP and DisablePublicNetwork imply a Network.
type LoadBalancers struct {
	Enabled bool
	lb.Defaults
}
