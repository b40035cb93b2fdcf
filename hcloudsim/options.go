package hcloudsim

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
)

// Unlimited disables a limit in [Options].
const Unlimited = -1

// Busy is the error returned for a change while another change runs on the same resource. The
// description documents conflict; clients have observed locked.
type Busy int

const (
	BusyConflict Busy = iota // 409 conflict, which hcloud-go retries
	BusyLocked               // 423 locked, which hcloud-go does not retry
)

// Options configure a [Simulator]. The zero value is a project with the real API's default limits
// and actions that end immediately. A limit of 0 means its default, [Unlimited] disables it.
type Options struct {
	// Token is the only accepted bearer token; empty accepts any token.
	Token string

	// ActionTime is the duration of an action; 0 ends it before the reply.
	ActionTime time.Duration
	// ActionJitter is the maximum random duration added to each action.
	ActionJitter time.Duration
	// ActionTimes are measured durations by action command, such as add_route. Each action of
	// that command draws one of them, using Seed, instead of ActionTime and ActionJitter.
	ActionTimes map[string][]time.Duration
	// EffectsAtOnce shows the effect of an action when it starts. Otherwise the effect shows when
	// the action has ended, which is all that the API guarantees.
	EffectsAtOnce bool
	// Busy is the error for a concurrent change of the same resource.
	Busy Busy
	// Latency delays each request before it is processed.
	Latency time.Duration
	// Seed makes the jitter and the draws from ActionTimes repeatable.
	Seed uint64

	RateLimit  int     // requests in a full budget; default 3600
	RateRefill float64 // requests refilled per second; default RateLimit per hour

	RouteLimit         int // routes per network; default 100
	SubnetLimit        int // subnets per network; default 50
	AttachmentLimit    int // servers and load balancers per network; default 100
	ServerNetworkLimit int // networks per server; default 3

	// Quotas limit the resources in the project by kind, such as server and ssh_key. By default
	// they are unlimited, because the real ones differ between accounts.
	Quotas map[string]int

	// OwnedIPs are addresses of the owner's dedicated servers, which may be targets.
	OwnedIPs []netip.Addr
	// Owned, if set, reports whether the owner has a further address, such as in a simulated
	// Robot account, see package robotsim. It is called with the lock held, and must not call
	// back.
	Owned func(netip.Addr) bool
	// OneTargetPerServer refuses a second target of a server at another address (undocumented).
	OneTargetPerServer bool
	// IPv6Source is the source address of connections to IPv6 targets. If not valid, each load
	// balancer uses its own public address. The description leaves it open.
	IPv6Source netip.Addr
	// RefuseReassign refuses to reassign an assigned floating IP with 422 floating_ip_assigned,
	// which the description lists for the operation. Otherwise the floating IP moves, as in the
	// description's introduction ("at any time").
	RefuseReassign bool
	// HealthyAfter is how long a target's health is unknown before it becomes healthy, counted
	// from the creation or last change of the target or the service.
	HealthyAfter time.Duration
	// ProxyHeaderInChecks starts health checks of services with the PROXY protocol with its
	// header, like client connections. Whether the real load balancers do so is not documented.
	ProxyHeaderInChecks bool
	// ServeUnjudged routes connections to targets of unknown health, see
	// [Simulator.HealthyTargets]. Whether the real load balancers do so is not documented.
	ServeUnjudged bool
	// Prober, if set, checks targets instead of the HealthyAfter timer. It is called on access,
	// at most once per check interval; a status changes after as many equal results as the check
	// has retries. It is called with the lock held, and must not call back.
	Prober Prober

	// RequestLogSize is the number of requests kept in the log; default 100,000.
	RequestLogSize int
	// ActionLogSize is the number of actions kept; default 20,000.
	ActionLogSize int
	// OnRequest, if set, is called for each request with its result.
	OnRequest func(Request)
	// Foretell adds routes to the [DataPlane] when the actions that add them start, for data
	// planes that forward packets before an action ends.
	Foretell bool
	// OnChange, if set, is called with the whole state after each change of servers, routes,
	// attachments, load balancers and floating IPs. Calls are ordered, serial, and without the
	// lock. A change made by a request is usually delivered before its reply; the end of an
	// action by a timer.
	OnChange func(DataPlane)
}

// owns reports whether the project owner has a dedicated server with the address.
func (o Options) owns(ip netip.Addr) bool {
	return slices.Contains(o.OwnedIPs, ip) || o.Owned != nil && o.Owned(ip)
}

func (o Options) withDefaults() Options {
	o.RateLimit = cmp.Or(o.RateLimit, 3600)
	o.RateRefill = cmp.Or(o.RateRefill, float64(o.RateLimit)/time.Hour.Seconds())
	o.RouteLimit = cmp.Or(o.RouteLimit, 100)
	o.SubnetLimit = cmp.Or(o.SubnetLimit, 50)
	o.AttachmentLimit = cmp.Or(o.AttachmentLimit, 100)
	o.ServerNetworkLimit = cmp.Or(o.ServerNetworkLimit, 3)
	o.RequestLogSize = cmp.Or(o.RequestLogSize, 100_000)
	o.ActionLogSize = cmp.Or(o.ActionLogSize, 20_000)
	return o
}

// With returns the options with measured values in the zero fields. Options that are set take
// precedence: ActionTime also disables the measured action times.
func (o Options) With(measured profile.Cloud) Options {
	if o.Busy == BusyConflict && measured.Busy != nil && *measured.Busy == profile.Locked {
		o.Busy = BusyLocked
	}
	if o.ActionTime == 0 && o.ActionTimes == nil && len(measured.ActionSeconds) > 0 {
		o.ActionTimes = map[string][]time.Duration{}
		for command, seconds := range measured.ActionSeconds {
			o.ActionTimes[command] = profile.Durations(seconds)
		}
	}
	if o.Latency == 0 && measured.LatencySeconds != nil {
		o.Latency = profile.Duration(*measured.LatencySeconds)
	}
	if o.RateLimit == 0 && measured.RateLimit != nil {
		o.RateLimit = *measured.RateLimit
	}
	if source := measured.IPv6Source; !o.IPv6Source.IsValid() && source != nil {
		o.IPv6Source, _ = netip.ParseAddr(*source) // validated by Read; invalid for profile.Own
	}
	for option, is := range map[*bool]*bool{
		&o.EffectsAtOnce:       measured.EffectsAtOnce,
		&o.RefuseReassign:      measured.RefuseReassign,
		&o.OneTargetPerServer:  measured.OneTargetPerServer,
		&o.ProxyHeaderInChecks: measured.ProxyHeaderInChecks,
		&o.ServeUnjudged:       measured.ServeUnjudged,
	} {
		if is != nil && *is {
			*option = true
		}
	}
	return o
}
