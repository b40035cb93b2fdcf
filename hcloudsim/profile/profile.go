// Package profile holds what a real cloud was measured to do where no source tells: the file that
// "hcloud-sim measure" writes and that "hcloud-sim --profile" takes.
//
// It is the one part of the simulator that programs which ship may know of: it has words and
// values, and does nothing.
package profile

import "time"

// Version is that of the format.
const Version = 1

// Profile is what was measured. What was not is nil, or empty, and stays as the simulator has it
// without a profile; [Default] is that.
type Profile struct {
	Version int `json:"version"`
	// Measured is when, Endpoint the host of the API that was asked, so that a simulator's profile
	// can be told from a cloud's, Location where, With the version of the program that did it.
	Measured time.Time `json:"measured,omitzero"`
	Endpoint string    `json:"endpoint,omitempty"`
	Location string    `json:"location,omitempty"`
	With     string    `json:"with,omitempty"`

	Cloud   Cloud   `json:"cloud"`
	Network Network `json:"network"`
	Robot   Robot   `json:"robot"`
}

// Cloud is what the API of the cloud does.
type Cloud struct {
	// Busy is the code of a change while another runs on the same resource: conflict or locked.
	Busy *string `json:"busy,omitempty"`
	// EffectsAtOnce: the API shows what an action does from its start, not from its end.
	EffectsAtOnce *bool `json:"effects_at_once,omitempty"`
	// ActionSeconds are how long actions took, by their command (add_route), sorted.
	ActionSeconds map[string][]float64 `json:"action_seconds,omitempty"`
	// LatencySeconds is how long a request that reads took, the median.
	LatencySeconds *float64 `json:"latency_seconds,omitempty"`
	// RateLimit is how many requests a full budget holds.
	RateLimit *int `json:"rate_limit,omitempty"`
	// AddressesInTurn: an address that was given back is given out again only after those behind
	// it; otherwise the first free one is taken.
	AddressesInTurn *bool `json:"addresses_in_turn,omitempty"`
	// RefuseReassign: a floating IP that a server has can't be assigned to another one.
	RefuseReassign *bool `json:"refuse_reassign,omitempty"`
	// OneTargetPerServer: a server can't be a target at a second address.
	OneTargetPerServer *bool `json:"one_target_per_server,omitempty"`
	// RefuseIPv6Targets: IPv6 addresses of dedicated servers can't be targets.
	RefuseIPv6Targets *bool `json:"refuse_ipv6_targets,omitempty"`
	// ZoneIgnoresPrimaryIPs: a load balancer made in a network zone is placed without regard to
	// where its primary IPs are.
	ZoneIgnoresPrimaryIPs *bool `json:"zone_ignores_primary_ips,omitempty"`
	// OneVSwitchSubnet: a network can't have a second subnet of type vswitch.
	OneVSwitchSubnet *bool `json:"one_vswitch_subnet,omitempty"`
	// ProxyHeaderInChecks: health checks of services with the PROXY protocol begin with its header.
	ProxyHeaderInChecks *bool `json:"proxy_header_in_checks,omitempty"`
	// ServeUnjudged: targets whose health is unknown get connections.
	ServeUnjudged *bool `json:"serve_unjudged,omitempty"`
	// IPv6Source is where load balancers connect to IPv6 addresses from: [Own], or an address.
	IPv6Source *string `json:"ipv6_source,omitempty"`
}

// Own is the load balancer's own address, in [Cloud.IPv6Source].
const Own = "own"

// Network is what happens to packets.
type Network struct {
	// PrivateMTU, PublicMTU and VSwitchMTU are the largest IP packets that pass, in bytes: between
	// servers in a network, between public addresses, and between a server and the vSwitch.
	PrivateMTU *int `json:"private_mtu,omitempty"`
	PublicMTU  *int `json:"public_mtu,omitempty"`
	VSwitchMTU *int `json:"vswitch_mtu,omitempty"`
	// AnySource: the network's gateway forwards packets whose source is neither the sending
	// server's nor routed to it; VSwitchAnySource: the vSwitch's gateway does.
	AnySource        *bool `json:"any_source,omitempty"`
	VSwitchAnySource *bool `json:"vswitch_any_source,omitempty"`
	// RouteSeconds are how long after the end of its action a route led packets, sorted; negative:
	// before the end.
	RouteSeconds []float64 `json:"route_seconds,omitempty"`
	// ProxyProtocol is the version of the PROXY protocol that targets get: 1 or 2.
	ProxyProtocol *int `json:"proxy_protocol,omitempty"`
	// RefuseProxied: the vSwitch's gateway takes no answer to ARP that one host gives for another.
	RefuseProxied *bool `json:"refuse_proxied,omitempty"`
	// Neighbors is how many hosts the vSwitch's gateway knows at most; 0: as many as were tried.
	Neighbors *int `json:"neighbors,omitempty"`
}

// Robot is what the Robot web service does.
type Robot struct {
	// ForbiddenLogin: a failed login gets 403, not 401.
	ForbiddenLogin *bool `json:"forbidden_login,omitempty"`
	// Processing: a member that is being changed has the status "processing", not "in process".
	Processing *bool `json:"processing,omitempty"`
	// VSwitchSeconds are how long a vSwitch was in process after a change, sorted.
	VSwitchSeconds []float64 `json:"vswitch_seconds,omitempty"`
	// LatencySeconds is how long a request that reads took, the median.
	LatencySeconds *float64 `json:"latency_seconds,omitempty"`
}

// Default is what the simulator does without a profile.
func Default() Profile {
	return Profile{
		Version: Version,
		Cloud: Cloud{
			Busy: new(Conflict), EffectsAtOnce: new(false), LatencySeconds: new(0.0), RateLimit: new(3600),
			AddressesInTurn: new(false), RefuseReassign: new(false), OneTargetPerServer: new(false),
			RefuseIPv6Targets: new(false), ZoneIgnoresPrimaryIPs: new(false), OneVSwitchSubnet: new(false),
			ProxyHeaderInChecks: new(false), ServeUnjudged: new(false), IPv6Source: new(Own),
		},
		Network: Network{
			PrivateMTU: new(1450), PublicMTU: new(1500), VSwitchMTU: new(1400), AnySource: new(false),
			VSwitchAnySource: new(false), ProxyProtocol: new(2), RefuseProxied: new(false), Neighbors: new(0),
		},
		Robot: Robot{ForbiddenLogin: new(false), Processing: new(false), LatencySeconds: new(0.0)},
	}
}
