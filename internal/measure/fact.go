package measure

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
)

// Fact is a question about the behavior of the cloud.
type Fact struct {
	ID, Question string
	// Packets reports whether temporary servers must send and receive packets for it.
	Packets bool
	// Quantity marks a measured number that varies between runs, so that it refines the
	// simulator's value instead of differing from it.
	Quantity bool
	// Words describes the behavior of a cloud with a complete profile.
	Words func(profile.Profile) string

	find func(context.Context, *run) (record, error)
}

// record writes a result into a profile.
type record = func(*profile.Profile)

// Facts returns all facts in order of measurement. Action times are last, to cover the whole run.
func Facts() []Fact {
	return []Fact{
		{
			ID: "latency", Question: "How long a request that reads takes, the median", find: latency,
			Quantity: true,
			Words:    func(p profile.Profile) string { return took(*p.Cloud.LatencySeconds) },
		},
		{
			ID: "rate-limit", Question: "Requests that a full budget holds", find: rateLimit,
			Words: func(p profile.Profile) string { return fmt.Sprintf("%d an hour", *p.Cloud.RateLimit) },
		},
		{
			ID: "busy", Question: "The error of a change while another runs on the same network",
			find:  busy,
			Words: func(p profile.Profile) string { return *p.Cloud.Busy },
		},
		{
			ID: "effect-shows", Question: "When the API shows the effect of an action", find: effectShows,
			Words: either(func(p profile.Profile) *bool { return p.Cloud.EffectsAtOnce },
				"from its start", "at its end"),
		},
		{
			ID: "targets-per-server", Question: "A second address of one server as a target",
			find: targetsPerServer,
			Words: either(func(p profile.Profile) *bool { return p.Cloud.OneTargetPerServer },
				"refused", "accepted"),
		},
		{
			ID: "floating-reassign", Question: "Assigning a floating IP that another server has",
			find: floatingReassign,
			Words: either(func(p profile.Profile) *bool { return p.Cloud.RefuseReassign },
				"refused", "moves"),
		},
		{
			ID: "source-check", Question: "Packets in the network with a source that is not the sender's",
			find: sourceCheck, Packets: true,
			Words: either(func(p profile.Profile) *bool { return p.Network.AnySource },
				"forwarded", "dropped"),
		},
		{
			ID: "private-mtu", Question: "The largest packet between servers in the network",
			find: privateMTU, Packets: true,
			Words: func(p profile.Profile) string { return strconv.Itoa(*p.Network.PrivateMTU) + " bytes" },
		},
		{
			ID: "public-mtu", Question: "The largest packet between public addresses",
			find: publicMTU, Packets: true,
			Words: func(p profile.Profile) string { return strconv.Itoa(*p.Network.PublicMTU) + " bytes" },
		},
		{
			ID: "route-effect", Question: "When a route carries packets, after the end of its action",
			find: routeEffect, Packets: true, Quantity: true,
			Words: func(p profile.Profile) string { return took(p.Network.RouteSeconds...) },
		},
		{
			ID: "source-ipv6", Question: "The source of a load balancer's connections to IPv6 targets",
			find: sourceIPv6, Packets: true,
			Words: func(p profile.Profile) string {
				if *p.Cloud.IPv6Source == profile.Own {
					return "its public address"
				}
				return "another address"
			},
		},
		{
			ID: "proxy-protocol", Question: "The version of the PROXY protocol that targets receive",
			find: proxyProtocol, Packets: true,
			Words: func(p profile.Profile) string {
				return fmt.Sprintf("version %d", *p.Network.ProxyProtocol)
			},
		},
		{
			ID: "proxy-in-checks", Question: "Health checks of services with the PROXY protocol",
			find: proxyInChecks, Packets: true,
			Words: either(func(p profile.Profile) *bool { return p.Cloud.ProxyHeaderInChecks },
				"with the header", "without it"),
		},
		{
			ID: "unjudged-targets", Question: "Connections while the only target's health is unknown",
			find: unjudgedTargets, Packets: true,
			Words: either(func(p profile.Profile) *bool { return p.Cloud.ServeUnjudged },
				"served", "not served"),
		},
		{
			ID: "action-times", Question: "How long actions take", find: actionTimes, Quantity: true,
			Words: func(p profile.Profile) string {
				var all []float64
				for _, seconds := range p.Cloud.ActionSeconds {
					all = append(all, seconds...)
				}
				return took(all...)
			},
		},
	}
}

// either returns yes or no according to a boolean field of the profile.
func either(is func(profile.Profile) *bool, yes, no string) func(profile.Profile) string {
	return func(p profile.Profile) string {
		if *is(p) {
			return yes
		}
		return no
	}
}

// took formats the minimum and maximum of some times.
func took(seconds ...float64) string {
	if len(seconds) == 0 {
		return "none"
	}
	shortest, longest := duration(slices.Min(seconds)), duration(slices.Max(seconds))
	if shortest == longest {
		return shortest.String()
	}
	return fmt.Sprintf("%s to %s", shortest, longest)
}

func duration(seconds float64) time.Duration {
	return profile.Duration(seconds).Round(time.Millisecond)
}
