package config

import (
	"net/netip"
	"time"
)

// What every file says of itself.
const (
	apiVersion = "underlay.dev/v1alpha1"
	kind       = "CloudConfig"
)

const defaultEndpoint = "https://api.hetzner.cloud/v1"

// setting is one row of the reference: a thing that can be set, where, and
// what it means.
type setting struct {
	// flag, key and env are the places it can be set in, in the order of
	// their precedence; empty where it can't be.
	flag, key, env string
	format         format
	// fallback is the default, in the notation of the format.
	fallback string
	// secret: a wrong value is not repeated.
	secret bool
	// required: a file must have the key.
	required bool
	meaning  string
}

// field is the setting's name where nobody has set it.
func (s setting) field() string {
	switch {
	case s.key != "":
		return s.key
	case s.flag != "":
		return s.flag
	}
	return s.env
}

// draft is the raw configuration: every value well-formed by itself, none
// compared with another yet.
type draft struct {
	apiVersion, kind        string
	cloudProvider, provider string
	cidrAllocatorType       string

	allocateNodeCIDRs, configureCloudRoutes bool
	clusterCIDRs, serviceRanges, exclude    []netip.Prefix
	nodeMask, nodeMask4, nodeMask6          int

	clusterName, endpoint, network string
	token                          Token
	tokenFile                      string
	addressFamily                  AddressFamily

	routesEnabled   bool
	ipamQPS         int
	routeLimit      int
	routeReserve    int
	maxDeletions    int
	reconcilePeriod time.Duration
	loadBalancers   LoadBalancers
}

// reference is the table of all settings, each bound to its place in d.
func reference(d *draft) []setting {
	rows := flagSettings(d)
	rows = append(rows, cloudSettings(d)...)
	rows = append(rows, podSettings(d)...)
	return append(rows, loadBalancerSettings(&d.loadBalancers)...)
}
