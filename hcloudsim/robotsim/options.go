package robotsim

import (
	"net/netip"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/hcloudsim/profile"
)

// Unlimited disables a quota in [Options].
const Unlimited = -1

// Blocked is the response to an address with too many failed logins, which is not documented.
type Blocked int

const (
	BlockedUnauthorized Blocked = iota // same as for a failed login
	BlockedForbidden                   // 403 without a code
	BlockedDropped                     // closes the connection without a response
)

// Options configure a [Simulator]. The zero value is an account with the documented quotas and
// limits that accepts any credentials and completes changes immediately.
type Options struct {
	// User and Password are the only accepted credentials. If both are empty, any are accepted.
	User, Password string

	// VSwitchTime is how long a vSwitch is in process after a change.
	VSwitchTime time.Duration
	// VSwitchTimes are measured values, one of which each change draws instead of VSwitchTime.
	VSwitchTimes []time.Duration
	// Seed makes the draws repeatable.
	Seed uint64
	// FailoverTime is the duration of a failover switch: 40 to 60 s at the real service.
	FailoverTime time.Duration
	// Latency delays each request before it is processed.
	Latency time.Duration

	// Quotas override the requests per hour by method and path as in [Operations]: "GET /server".
	// 0 keeps the documented quota, [Unlimited] disables it.
	Quotas map[string]int
	// FixedHours counts requests per clock hour. Otherwise the quota applies to a sliding window
	// of an hour, which is stricter.
	FixedHours bool
	// RefusedCount counts requests that were refused for the quota toward it.
	RefusedCount bool
	// MaxRequests names the field of a quota error max_requests, as observed; the documentation
	// has max_request.
	MaxRequests bool

	// ForbiddenLogin returns 403 for a failed login, as observed; the documentation has 401.
	ForbiddenLogin bool
	// Blocked is the response to a blocked address.
	Blocked Blocked
	// Processing names the status of a changing member "processing", as observed; the
	// documentation has "in process".
	Processing bool

	// CloudSubnets, if set, returns the subnets of cloud networks that are coupled with a
	// vSwitch, see [Coupled]. It is called without the simulator's lock.
	CloudSubnets func() []CloudSubnet

	// RequestLogSize is the number of requests kept in the log; default 100,000.
	RequestLogSize int
	// OnRequest, if set, is called for each request with its result.
	OnRequest func(Request)
}

// With returns the options with measured values in the zero fields. Options that are set take
// precedence: VSwitchTime also disables the measured VSwitchTimes.
func (o Options) With(measured profile.Robot) Options {
	if o.VSwitchTime == 0 && o.VSwitchTimes == nil {
		o.VSwitchTimes = profile.Durations(measured.VSwitchSeconds)
	}
	if o.Latency == 0 && measured.LatencySeconds != nil {
		o.Latency = profile.Duration(*measured.LatencySeconds)
	}
	o.ForbiddenLogin = o.ForbiddenLogin || measured.ForbiddenLogin != nil && *measured.ForbiddenLogin
	o.Processing = o.Processing || measured.Processing != nil && *measured.Processing
	return o
}

// CloudSubnet is a subnet of a cloud network that is coupled with a vSwitch.
type CloudSubnet struct {
	VSwitch int64 // ID of the vSwitch
	Network int64 // ID of the cloud network
	Range   netip.Prefix
	Gateway netip.Addr
}

// Coupled returns a function for [Options.CloudSubnets] that lists the subnets of a simulated
// cloud's networks that are coupled with a vSwitch.
func Coupled(cloud *hcloudsim.Simulator) func() []CloudSubnet {
	return func() (found []CloudSubnet) {
		for _, n := range cloud.DataPlane().Networks {
			for _, s := range n.VSwitches {
				found = append(found, CloudSubnet{s.ID, n.ID, s.Range, s.Gateway})
			}
		}
		return found
	}
}
