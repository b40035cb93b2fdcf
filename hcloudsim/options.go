package hcloudsim

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// Unlimited, as a limit in [Options], takes the limit away.
const Unlimited = -1

// Busy is the error that a change gets while another runs on the same
// resource. The description says conflict, clients have seen locked.
type Busy int

const (
	BusyConflict Busy = iota // 409 conflict, which hcloud-go tries again
	BusyLocked               // 423 locked, which it does not
)

// Options configure a [Simulator]. The zero value is a project with the real
// API's default limits, whose actions take no time. A limit of 0 means its
// default, [Unlimited] means none.
type Options struct {
	// Token is the only bearer token that is accepted; empty accepts any.
	Token string

	// ActionTime is how long an action runs; 0 ends it before the reply.
	ActionTime time.Duration
	// ActionJitter adds up to this much to each action.
	ActionJitter time.Duration
	// ActionTimes are how long actions were measured to take, by their command:
	// add_route. One of a command's times is drawn for each of its actions, by
	// the seed, in place of ActionTime and ActionJitter.
	ActionTimes map[string][]time.Duration
	// EffectsAtOnce shows what an action does from its start. Otherwise it
	// shows when the action has ended, which is all that the API promises.
	EffectsAtOnce bool
	// Busy is the answer to a second change of the same resource.
	Busy Busy
	// Latency delays each request before it is looked at.
	Latency time.Duration
	// Seed makes the jitter, and what is drawn of ActionTimes, repeatable.
	Seed uint64

	RateLimit  int     // requests that a full budget holds; default 3600
	RateRefill float64 // requests per second that come back; default RateLimit in an hour

	RouteLimit         int // routes per network; default 100
	SubnetLimit        int // subnets per network; default 50
	AttachmentLimit    int // servers and load balancers per network; default 100
	ServerNetworkLimit int // networks per server; default 3
	// VSwitchMembers, if set, has the dedicated servers in a vSwitch count toward
	// AttachmentLimit of the network that is coupled with it: it returns how many there
	// are by the vSwitch's ID, see package robotsim. Whether the real ones count is not
	// documented. It is called with the simulator's lock held, and must not call back.
	VSwitchMembers func(vSwitch int64) int
	// OneVSwitchSubnet refuses a second subnet of type vswitch in a network. Whether
	// there may be several is not documented.
	OneVSwitchSubnet bool

	// The project's quotas; default Unlimited, because each account has its own.
	ServerLimit, NetworkLimit, LoadBalancerLimit, FloatingIPLimit, CertificateLimit, SSHKeyLimit int

	// LoadBalancerTypes changes what types of load balancers allow, by their
	// names: lb11, lb21, lb31.
	LoadBalancerTypes map[string]TypeLimits

	// OwnedIPs are the addresses of dedicated servers that the project's
	// owner has, and so may use as targets of a load balancer.
	OwnedIPs []netip.Addr
	// Owned, if set, reports which further addresses are the owner's: those of a
	// simulated Robot account, see package robotsim. It is called with the
	// simulator's lock held, and must not call back.
	Owned func(netip.Addr) bool
	// RefuseIPv6Targets takes only IPv4 addresses as targets of type ip. The
	// description leaves it open.
	RefuseIPv6Targets bool
	// OneTargetPerServer refuses a second target of a server at another address
	// of it. The description leaves open whether there can be several.
	OneTargetPerServer bool
	// IPv6Source is where load balancers connect to IPv6 addresses from. Not
	// valid: each from its own public address. The description leaves it open.
	IPv6Source netip.Addr
	// ZoneIgnoresPrimaryIPs places a load balancer that is created in a network zone without regard
	// to the locations of its primary IPs, and refuses it where they differ. Otherwise it is placed
	// where its primary IPs are. No source tells which.
	ZoneIgnoresPrimaryIPs bool
	// RefuseReassign refuses to assign a floating IP that a server has: 422 floating_ip_assigned, as
	// the description lists it for the operation. Otherwise it moves, as the description's
	// introduction says ("at any time").
	RefuseReassign bool
	// AddressesInTurn gives out a network's addresses in turn: one that was given
	// back only after those behind it. Otherwise a member gets the first that is
	// free in its subnet. No source tells which.
	AddressesInTurn bool
	// HealthyAfter is how long a target's health is unknown before it turns
	// healthy, counted from when the target or the service came to be.
	HealthyAfter time.Duration
	// ProxyHeaderInChecks lets health checks of services with the PROXY protocol
	// begin with its header, as connections of clients do. Whether the real
	// cloud's do is not documented.
	ProxyHeaderInChecks bool
	// ServeUnjudged lets targets get connections whose health is unknown, see
	// [Simulator.HealthyTargets]. Whether the real ones do is not documented.
	ServeUnjudged bool
	// Prober, if set, judges targets instead of time: it is asked once in each
	// interval of the health check in which somebody looks, and a status changes
	// after as many equal answers as the check has retries. It is called with
	// the simulator's lock held, and must not call back.
	Prober Prober

	// RequestLogSize is how many requests are remembered; default 100,000.
	RequestLogSize int
	// ActionLogSize is how many actions are remembered; default 20,000.
	ActionLogSize int
	// OnRequest, if set, is told of each request once its answer is known.
	OnRequest func(Request)
	// Foretell has routes in the [DataPlane] from the start of the actions that add them, beside those that
	// the API shows, for who has them lead packets before an action ends.
	Foretell bool
	// OnChange, if set, is told of each change of servers, routes, attachments, load
	// balancers and floating IPs, so that a router and proxies can follow: with the whole state,
	// in order, one at a time, without the simulator's lock. A change that a
	// request makes is usually told before its reply; the end of an action when
	// it comes, by a timer, also if nobody looks.
	OnChange func(DataPlane)
}

// owns reports whether an address belongs to a dedicated server of the project's
// owner.
func (o Options) owns(ip netip.Addr) bool {
	return slices.Contains(o.OwnedIPs, ip) || o.Owned != nil && o.Owned(ip)
}

// TypeLimits is how much a load balancer of a type may have; 0 leaves a limit
// as it is.
type TypeLimits struct{ Services, Targets, Certificates int }

func (o Options) withDefaults() Options {
	o.RateLimit = cmp.Or(o.RateLimit, 3600)
	o.RateRefill = cmp.Or(o.RateRefill, float64(o.RateLimit)/time.Hour.Seconds())
	o.RouteLimit = cmp.Or(o.RouteLimit, 100)
	o.SubnetLimit = cmp.Or(o.SubnetLimit, 50)
	o.AttachmentLimit = cmp.Or(o.AttachmentLimit, 100)
	o.ServerNetworkLimit = cmp.Or(o.ServerNetworkLimit, 3)
	o.ServerLimit = cmp.Or(o.ServerLimit, Unlimited)
	o.NetworkLimit = cmp.Or(o.NetworkLimit, Unlimited)
	o.LoadBalancerLimit = cmp.Or(o.LoadBalancerLimit, Unlimited)
	o.FloatingIPLimit = cmp.Or(o.FloatingIPLimit, Unlimited)
	o.CertificateLimit = cmp.Or(o.CertificateLimit, Unlimited)
	o.SSHKeyLimit = cmp.Or(o.SSHKeyLimit, Unlimited)
	o.RequestLogSize = cmp.Or(o.RequestLogSize, 100_000)
	o.ActionLogSize = cmp.Or(o.ActionLogSize, 20_000)
	return o
}
