package lb

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"time"
)

// CheckMode says how nodes are judged under externalTrafficPolicy: Cluster, when no annotation says
// otherwise.
type CheckMode string

const (
	// CheckKubeProxy asks kube-proxy's health port (HTTP 10256, /healthz), so that a draining node
	// leaves.
	CheckKubeProxy CheckMode = "kube-proxy"
	// CheckNodePort connects to the node port, for clusters whose proxy has no health port.
	CheckNodePort CheckMode = "node-port"
)

// Defaults hold for every Service that does not say otherwise. Empty fields mean the built-in
// default.
type Defaults struct {
	// Cluster marks everything that this cluster owns in the cloud. Required; a valid label value.
	Cluster string
	// Network is the ID of the network that load balancers are attached to. 0: attachment is left
	// alone.
	Network int64
	// DedicatedRanges are where dedicated servers have their addresses in Network: its vSwitch
	// subnets, or where none is known, its own range. Empty: nobody knows, and any private address
	// counts.
	DedicatedRanges []netip.Prefix

	Location    string // at most one of Location and NetworkZone
	NetworkZone string
	Type        string    // built in: lb11
	Algorithm   Algorithm // built in: round_robin

	// PrivateSubnet is the range of the subnet that load balancers get their address in. Zero: the
	// cloud's choice.
	PrivateSubnet netip.Prefix

	UsePrivateIP          bool
	DisablePrivateIngress bool
	DisablePublicNetwork  bool
	UsesProxyProtocol     bool
	DisableIPv6           bool

	CheckDefaults

	// Classless makes Services without loadBalancerClass ours.
	Classless bool

	// OwnPools: nodes get IPv6 prefixes for pods out of their servers' own ones.
	OwnPools bool
	// PodTargetSources are where load balancers may connect to pods from, beside their own
	// addresses.
	PodTargetSources []netip.Prefix

	Grants
}

// CheckDefaults are how targets are judged.
type CheckDefaults struct {
	HealthCheck         CheckMode     // built in: kube-proxy
	HealthCheckInterval time.Duration // built in: 10 s
	HealthCheckTimeout  time.Duration // built in: 15 s
	HealthCheckRetries  int           // built in: 3
}

// Grants are the project's resources that the configuration lets Services use.
type Grants struct {
	// Adoptable are load balancers of others that may be taken over without a label in the cloud.
	Adoptable []Adoptable
	// PrimaryIPs are those that may be used without a label in the cloud.
	PrimaryIPs []GivenAddress
	// Shared are load balancers that Services of several namespaces may share.
	Shared []SharedName
	// Certificates determines which certificates Services may name. Built in: any.
	Certificates CertificateUse
}

// Limits of health checks, from the cloud's API.
const (
	minInterval, maxInterval = 3 * time.Second, 60 * time.Second
	minTimeout, maxTimeout   = 1 * time.Second, 60 * time.Second
	minRetries, maxRetries   = 1, 5
)

// resolved returns the defaults with every built-in value in its place.
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

// Validate reports what would go wrong silently: load balancers that are not marked, or that differ
// from the cloud's for ever because it counts in seconds. What else may be wrong is said where it
// is used, by Parse or by the cloud. The errors name fields of Defaults.
func (d Defaults) Validate() error {
	var errs []error
	bad := func(field string, value any, remedy string) {
		errs = append(errs, fmt.Errorf("%s=%q: %s", field, fmt.Sprint(value), remedy))
	}
	if !labelValue(d.Cluster) {
		bad("Cluster", d.Cluster,
			"the cluster's name marks load balancers as a label value: set 1 to 63 letters, "+
				"digits, '-', '_' or '.'")
	}
	r := d.resolved()
	if !wholeSeconds(r.HealthCheckInterval, minInterval, maxInterval) {
		bad("HealthCheckInterval", r.HealthCheckInterval, "set whole seconds from 3s to 60s")
	}
	if !wholeSeconds(r.HealthCheckTimeout, minTimeout, maxTimeout) {
		bad("HealthCheckTimeout", r.HealthCheckTimeout, "set whole seconds from 1s to 60s")
	}
	return errors.Join(errs...)
}

func wholeSeconds(d, low, high time.Duration) bool {
	return d >= low && d <= high && d%time.Second == 0
}

// labelValue reports whether s can be a non-empty label value of the cloud and of Kubernetes.
var labelValue = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9._-]{0,61}[a-zA-Z0-9])?$`).MatchString
