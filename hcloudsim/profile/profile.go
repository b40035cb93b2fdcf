// Package profile defines the file with measured behavior of a real cloud that no source
// documents. "hcloud-sim measure" writes it and "hcloud-sim --profile" reads it.
//
// It is the only part of the simulator that released programs may import, and has no behavior.
package profile

import "time"

// Version is the version of the file format.
const Version = 1

// Profile holds measurements. Values that were not measured are nil or empty; for those the
// simulator uses its defaults, see [Default].
type Profile struct {
	Version int `json:"version"`
	// Measured is the time of the measurement, Endpoint the API's host, which distinguishes a
	// simulator from a cloud, Location the location, and With the version of the measuring
	// program.
	Measured time.Time `json:"measured,omitzero"`
	Endpoint string    `json:"endpoint,omitempty"`
	Location string    `json:"location,omitempty"`
	With     string    `json:"with,omitempty"`

	Cloud   Cloud   `json:"cloud"`
	Network Network `json:"network"`
	Robot   Robot   `json:"robot"`
}

// Cloud holds the behavior of the cloud API.
type Cloud struct {
	// Busy is the error code of a concurrent change of a resource: conflict or locked.
	Busy *string `json:"busy,omitempty"`
	// EffectsAtOnce: the API shows the effect of an action when it starts, not when it ends.
	EffectsAtOnce *bool `json:"effects_at_once,omitempty"`
	// ActionSeconds are the sorted durations of actions by command, such as add_route.
	ActionSeconds map[string][]float64 `json:"action_seconds,omitempty"`
	// LatencySeconds is the median duration of a read request.
	LatencySeconds *float64 `json:"latency_seconds,omitempty"`
	// RateLimit is the number of requests in a full budget.
	RateLimit *int `json:"rate_limit,omitempty"`
	// RefuseReassign: an assigned floating IP can't be assigned to another server.
	RefuseReassign *bool `json:"refuse_reassign,omitempty"`
	// OneTargetPerServer: a server can't be a target at a second address.
	OneTargetPerServer *bool `json:"one_target_per_server,omitempty"`
	// ProxyHeaderInChecks: health checks of PROXY protocol services begin with its header.
	ProxyHeaderInChecks *bool `json:"proxy_header_in_checks,omitempty"`
	// ServeUnjudged: targets of unknown health get connections.
	ServeUnjudged *bool `json:"serve_unjudged,omitempty"`
	// IPv6Source is the source address of connections to IPv6 targets: [Own], or an address.
	IPv6Source *string `json:"ipv6_source,omitempty"`
}

// Own is the load balancer's own address, in [Cloud.IPv6Source].
const Own = "own"

// Network holds the behavior of the network for packets.
type Network struct {
	// PrivateMTU, PublicMTU and VSwitchMTU are the largest forwarded IP packets in bytes: between
	// servers in a network, between public addresses, and between a server and the vSwitch.
	PrivateMTU *int `json:"private_mtu,omitempty"`
	PublicMTU  *int `json:"public_mtu,omitempty"`
	VSwitchMTU *int `json:"vswitch_mtu,omitempty"`
	// AnySource: the network's gateway forwards packets with a source that is neither an address
	// of the sending server nor routed to it; VSwitchAnySource: so does the vSwitch's gateway.
	AnySource        *bool `json:"any_source,omitempty"`
	VSwitchAnySource *bool `json:"vswitch_any_source,omitempty"`
	// RouteSeconds are the sorted delays in seconds between the end of a route's action and its
	// effect on packets; negative: before the end.
	RouteSeconds []float64 `json:"route_seconds,omitempty"`
	// ProxyProtocol is the version of the PROXY protocol that targets receive: 1 or 2.
	ProxyProtocol *int `json:"proxy_protocol,omitempty"`
	// RefuseProxied: the vSwitch's gateway ignores proxy ARP replies.
	RefuseProxied *bool `json:"refuse_proxied,omitempty"`
	// Neighbors is the neighbor limit of the vSwitch's gateway; 0: the limit was not reached.
	Neighbors *int `json:"neighbors,omitempty"`
}

// Robot holds the behavior of the Robot web service.
type Robot struct {
	// ForbiddenLogin: a failed login returns 403, not 401.
	ForbiddenLogin *bool `json:"forbidden_login,omitempty"`
	// Processing: a member that is being changed has the status "processing", not "in process".
	Processing *bool `json:"processing,omitempty"`
	// VSwitchSeconds are the sorted durations of vSwitch changes in seconds.
	VSwitchSeconds []float64 `json:"vswitch_seconds,omitempty"`
	// LatencySeconds is the median duration of a read request.
	LatencySeconds *float64 `json:"latency_seconds,omitempty"`
}

// Default returns the behavior of the simulator without a profile.
func Default() Profile {
	return Profile{
		Version: Version,
		Cloud: Cloud{
			Busy: new(Conflict), EffectsAtOnce: new(false), LatencySeconds: new(0.0), RateLimit: new(3600),
			RefuseReassign: new(false), OneTargetPerServer: new(false),
			ProxyHeaderInChecks: new(false), ServeUnjudged: new(false), IPv6Source: new(Own),
		},
		Network: Network{
			PrivateMTU: new(1450), PublicMTU: new(1500), VSwitchMTU: new(1400), AnySource: new(false),
			VSwitchAnySource: new(false), ProxyProtocol: new(2), RefuseProxied: new(false),
			Neighbors: new(0),
		},
		Robot: Robot{ForbiddenLogin: new(false), Processing: new(false), LatencySeconds: new(0.0)},
	}
}
