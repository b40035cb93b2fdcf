package robotsim

import (
	"cmp"
	"net/netip"
	"time"
)

// Unlimited disables a limit in [Options].
const Unlimited = -1

// Blocked is the response to an address with too many failed logins, which is not documented.
type Blocked int

const (
	BlockedUnauthorized Blocked = iota // same as for a failed login
	BlockedForbidden                   // 403 without a code
	BlockedDropped                     // closes the connection without a response
)

// Options configure a [Simulator]. The zero value is an account with the documented quotas and
// limits that accepts any credentials and completes changes immediately. A limit of 0 means its
// default, [Unlimited] disables it.
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
	// FailedLogins is how many failures within BlockTime block an address; default 3.
	FailedLogins int
	// BlockTime is the duration of a block; default 10 minutes.
	BlockTime time.Duration
	// Blocked is the response to a blocked address.
	Blocked Blocked

	VSwitchLimit       int // vSwitches; default Unlimited, because it differs between accounts
	VSwitchServerLimit int // servers per vSwitch; default 100
	ServerVSwitchLimit int // vSwitches per server; default 5
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

// CloudSubnet is a subnet of a cloud network that is coupled with a vSwitch.
type CloudSubnet struct {
	VSwitch int64 // ID of the vSwitch
	Network int64 // ID of the cloud network
	Range   netip.Prefix
	Gateway netip.Addr
}

func (o Options) withDefaults() Options {
	o.FailedLogins = cmp.Or(o.FailedLogins, 3)
	o.BlockTime = cmp.Or(o.BlockTime, 10*time.Minute)
	o.VSwitchLimit = cmp.Or(o.VSwitchLimit, Unlimited)
	o.VSwitchServerLimit = cmp.Or(o.VSwitchServerLimit, 100)
	o.ServerVSwitchLimit = cmp.Or(o.ServerVSwitchLimit, 5)
	o.RequestLogSize = cmp.Or(o.RequestLogSize, 100_000)
	return o
}
