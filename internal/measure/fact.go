package measure

import (
	"cmp"
	"slices"
	"strings"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
)

// FactID names a fact in flags, tables and reports.
type FactID string

// What can be found out.
const (
	// By the API alone.
	Latency          FactID = "latency"
	RateLimit        FactID = "rate-limit"
	Busy             FactID = "busy"
	EffectShows      FactID = "effect-shows"
	ActionTimes      FactID = "action-times"
	AddressReuse     FactID = "address-reuse"
	FloatingReassign FactID = "floating-reassign"
	ZonePrimaryIPs   FactID = "zone-primary-ips"
	TargetsPerServer FactID = "targets-per-server"

	// By packets of throw-away servers.
	RouteEffect     FactID = "route-effect"
	SourceCheck     FactID = "source-check"
	PrivateMTU      FactID = "private-mtu"
	PublicMTU       FactID = "public-mtu"
	SourceIPv6      FactID = "source-ipv6"
	ProxyInChecks   FactID = "proxy-in-checks"
	ProxyProtocol   FactID = "proxy-protocol"
	UnjudgedTargets FactID = "unjudged-targets"

	// With a dedicated server of the user's.
	IPv6Targets    FactID = "ipv6-targets"
	VSwitchSubnets FactID = "vswitch-subnets"
	VSwitchMTU     FactID = "vswitch-mtu"
	VSwitchSource  FactID = "vswitch-source"
	ProxyARP       FactID = "proxy-arp"
	Neighbors      FactID = "neighbors"

	// By the Robot web service.
	RobotLatency FactID = "robot-latency"
	RobotLogin   FactID = "robot-login"
	RobotMembers FactID = "robot-members"
)

// Things are counts of what a run makes in the project, altogether: one that is removed and made
// again counts twice.
type Things struct {
	Servers, Networks, LoadBalancers, FloatingIPs, PrimaryIPs int
}

// Needs are what a fact takes to be found out.
type Needs struct {
	// Servers are throw-away ones that experiments share, and so are the network with a subnet, the
	// load balancer and the floating IP. Servers and the load balancer are in the network, whether
	// Network says so or not.
	Servers      int
	Network      bool
	LoadBalancer bool
	FloatingIP   bool
	// Own is what the experiment makes for itself beside those.
	Own Things
	// Inside: the servers' programs must be reached.
	Inside bool
	// Dedicated: a dedicated server of the user's is named; with Inside its program must be reached.
	Dedicated bool
	// VSwitch: a vSwitch of the user's is named that is coupled with no network.
	VSwitch bool
	// Robot: credentials of the web service.
	Robot bool
	// Named: only where --only names it, because it can annoy.
	Named bool
}

// Fact is a question about the cloud that no source answers.
type Fact struct {
	ID       FactID
	Question string
	Needs    Needs
	// Quantity: the answer is a number that is never the same twice, so it doesn't differ from what
	// is assumed; it is more exact.
	Quantity bool
	// Assumed is what a simulator with this profile does, in the words of [Observation.Seen]; nil:
	// nothing is assumed.
	Assumed func(profile.Profile) string
}

// String renders them for people.
func (n Needs) String() string {
	t := ThingsOf([]Fact{{Needs: n}})
	var parts []string
	if t != (Things{}) {
		parts = append(parts, t.String())
	}
	for what, is := range map[string]bool{
		"dedicated server": n.Dedicated, "vSwitch": n.VSwitch, "Robot": n.Robot,
	} {
		if is {
			parts = append(parts, what)
		}
	}
	slices.Sort(parts)
	return cmp.Or(strings.Join(parts, ", "), "requests alone")
}

// String renders what there is for people: "3 servers, 1 network".
func (t Things) String() string {
	var parts []string
	for _, thing := range []struct {
		n    int
		what string
	}{
		{t.Servers, "server"},
		{t.Networks, "network"},
		{t.LoadBalancers, "load balancer"},
		{t.FloatingIPs, "floating IP"},
		{t.PrimaryIPs, "primary IP"},
	} {
		if thing.n > 0 {
			parts = append(parts, Plural(thing.n, thing.what))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "nothing")
}
