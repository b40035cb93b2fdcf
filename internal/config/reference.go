package config

import (
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/underlay-ccm/underlay/lb"
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

// list is a key that holds a list of sections, whose rows come into being with
// its items.
type list struct {
	key, of, meaning string
	// item adds one to the draft and returns its rows, keys beginning with
	// section: pools[1].name, or in the reference pools[].name.
	item func(section string) []setting
}

// draft is the raw configuration: every value well-formed by itself, none
// compared with another yet.
type draft struct {
	apiVersion, kind  string
	cloudProvider     string
	provider          Provider
	inventory         []*machineDraft
	cidrAllocatorType string

	allocateNodeCIDRs, configureCloudRoutes bool
	clusterCIDRs, serviceRanges, exclude    []netip.Prefix
	nodeMask, nodeMask4, nodeMask6          int
	pools                                   []*poolDraft
	families                                Families
	quarantine                              time.Duration

	clusterName, endpoint, network string
	token                          Token
	tokenFile                      string
	addressFamily                  AddressFamily
	robot                          robotDraft

	routesEnabled   bool
	ipamQPS         int
	ledgerShards    LedgerShards
	routeLimit      int
	routeReserve    int
	maxDeletions    int
	reconcilePeriod time.Duration
	vSwitch         VSwitch
	loadBalancers   LoadBalancers
	adoptable       []*lb.Adoptable
	primaryIPs      []*lb.GivenAddress
	shared          []*sharedDraft
	addresses       Addresses
	addressPools    []*addressPoolDraft
	bgpPeers        []*bgpPeerDraft
}

// poolDraft is an item of pools.
type poolDraft struct {
	section             string
	name, source, state string
	cidr                netip.Prefix
	nodeMask            int
	selector            labels.Selector
}

// machineDraft is an item of inventory.
type machineDraft struct {
	section string
	Machine
}

// sharedDraft is an item of loadBalancers.shared.
type sharedDraft struct {
	section string
	lb.SharedName
}

// reference is the table of all settings but those in lists, each bound to its
// place in d.
func reference(d *draft) []setting {
	rows := flagSettings(d)
	rows = append(rows, cloudSettings(d)...)
	rows = append(rows, robotSettings(&d.robot)...)
	rows = append(rows, podSettings(d)...)
	rows = append(rows, vSwitchSettings(&d.vSwitch)...)
	rows = append(rows, loadBalancerSettings(&d.loadBalancers)...)
	return append(rows, addressSettings(&d.addresses)...)
}

// lists is the table of all lists of sections.
func lists(d *draft) []list {
	return []list{
		{
			key: poolsKey, of: "pool",
			meaning: "What podCIDRs are carved from, see [Pools](#pools). None: one pool for each `--cluster-cidr`.",
			item: func(section string) []setting {
				pool := &poolDraft{section: section}
				d.pools = append(d.pools, pool)
				return poolSettings(section, pool)
			},
		},
		{
			key: inventoryKey, of: "machine",
			meaning: "Machines that are known beforehand: those of provider `metal`, or dedicated servers beside the cloud's, see [Inventory](#inventory).",
			item: func(section string) []setting {
				machine := &machineDraft{section: section}
				d.inventory = append(d.inventory, machine)
				return machineSettings(section, &machine.Machine)
			},
		},
		{
			key: adoptableKey, of: "load balancer",
			meaning: "Load balancers made by others that Services may take over, see [Adoptable load balancers](#adoptable-load-balancers). None: only those whose labels in the cloud say so.",
			item: func(section string) []setting {
				one := &lb.Adoptable{}
				d.adoptable = append(d.adoptable, one)
				return adoptableSettings(section, one)
			},
		},
		{
			key: primaryIPsKey, of: "primary IP",
			meaning: "Primary IPs that Services may have their load balancers created with, see [Primary IPs](#primary-ips). None: only those whose labels in the cloud say so.",
			item: func(section string) []setting {
				one := &lb.GivenAddress{}
				d.primaryIPs = append(d.primaryIPs, one)
				return primaryIPSettings(section, one)
			},
		},
		{
			key: sharedKey, of: "load balancer",
			meaning: "Load balancers that Services of several namespaces may share, see [Shared load balancers](#shared-load-balancers). None: only Services of one namespace share one.",
			item: func(section string) []setting {
				one := &sharedDraft{section: section}
				d.shared = append(d.shared, one)
				return sharedSettings(section, &one.SharedName)
			},
		},
		{
			key: addressPoolsKey, of: "pool",
			meaning: "Addresses for Services that nodes hold, see [Address pools](#address-pools). None: Services get no such addresses.",
			item: func(section string) []setting {
				pool := &addressPoolDraft{section: section}
				d.addressPools = append(d.addressPools, pool)
				return addressPoolSettings(section, &pool.AddressPool)
			},
		},
		{
			key: bgpPeersKey, of: "router",
			meaning: "Routers that nodes announce addresses to, see [BGP peers](#bgp-peers).",
			item: func(section string) []setting {
				peer := &bgpPeerDraft{section: section}
				d.bgpPeers = append(d.bgpPeers, peer)
				return bgpPeerSettings(section, peer)
			},
		},
	}
}

// itemReference is the table of all settings in lists, as in pools[].name.
func itemReference() []setting {
	var rows []setting
	for _, l := range lists(&draft{}) {
		rows = append(rows, l.item(l.key+"[]")...)
	}
	return rows
}
