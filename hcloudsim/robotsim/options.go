package robotsim

import (
	"cmp"
	"net/netip"
	"time"
)

// Unlimited, as a limit in [Options], takes the limit away.
const Unlimited = -1

// Blocked is what an address gets whose logins failed too often. The
// documentation says that it is blocked, and not how that looks.
type Blocked int

const (
	BlockedUnauthorized Blocked = iota // what a failed login gets
	BlockedForbidden                   // 403 without a code
	BlockedDropped                     // the connection ends without an answer
)

// Options configure a [Simulator]. The zero value is an account with the
// documented quotas and limits, whose changes take no time and which lets
// everybody in. A limit of 0 means its default, [Unlimited] means none.
type Options struct {
	// User and Password are the only credentials that are accepted. Without
	// both, any are.
	User, Password string

	// VSwitchTime is how long a vSwitch is in process after a change.
	VSwitchTime time.Duration
	// VSwitchTimes are how long it was measured to be. One of them is drawn for
	// each change, by the seed, in place of VSwitchTime.
	VSwitchTimes []time.Duration
	// Seed makes what is drawn repeatable.
	Seed uint64
	// FailoverTime is how long it takes until a failover address is routed
	// elsewhere, and the request is answered: 40 to 60 s at the real service.
	FailoverTime time.Duration
	// Latency delays each request before it is looked at.
	Latency time.Duration

	// Quotas change how often an operation may be asked for in an hour, by its
	// method and path as in [Operations]: "GET /server".
	Quotas map[string]int
	// FixedHours counts requests from one full hour to the next. Otherwise each
	// request counts for an hour, which allows no more and is harder to keep.
	FixedHours bool
	// RefusedCount lets requests that were refused for the quota count toward it.
	RefusedCount bool
	// MaxRequests names the field of a refusal max_requests, as clients have
	// seen it; otherwise max_request, as it is documented.
	MaxRequests bool

	// ForbiddenLogin answers a failed login with 403, as clients have seen it;
	// otherwise with 401, as it is documented.
	ForbiddenLogin bool
	// FailedLogins is how many within BlockTime block an address; default 3.
	FailedLogins int
	// BlockTime is how long an address is blocked; default 10 minutes.
	BlockTime time.Duration
	// Blocked is what a blocked address gets.
	Blocked Blocked

	VSwitchLimit       int // vSwitches; default Unlimited, because each account has its own
	VSwitchServerLimit int // servers per vSwitch; default 100
	ServerVSwitchLimit int // vSwitches per server; default 5
	// Processing names the status of a member that is being changed
	// "processing", as clients have seen it; otherwise "in process", as it is
	// documented.
	Processing bool

	// CloudSubnets, if set, tells which subnets of cloud networks are coupled
	// with a vSwitch, see [Coupled]. It is called without the simulator's lock.
	CloudSubnets func() []CloudSubnet

	// RequestLogSize is how many requests are remembered; default 100,000.
	RequestLogSize int
	// OnRequest, if set, is told of each request once its answer is known.
	OnRequest func(Request)
}

// CloudSubnet is a subnet of a cloud network that is coupled with a vSwitch.
type CloudSubnet struct {
	VSwitch int64 // its ID
	Network int64 // the cloud network's ID
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
