package measure

import (
	"slices"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
)

// Facts are all of them, in the order in which they are found out and shown.
func Facts() []Fact {
	return slices.Concat(apiFacts(), packetFacts(), dedicatedFacts(), robotFacts())
}

// Of is the fact with an ID.
func Of(id FactID) (Fact, bool) {
	all := Facts()
	i := slices.IndexFunc(all, func(f Fact) bool { return f.ID == id })
	if i < 0 {
		return Fact{}, false
	}
	return all[i], true
}

// apiFacts are found out by the API alone.
func apiFacts() []Fact {
	return []Fact{
		{
			ID: Latency, Question: "How long a request that reads takes, the median", Quantity: true,
			Assumed: func(p profile.Profile) string { return orNone(value(p.Cloud.LatencySeconds)) },
		},
		{
			ID: RateLimit, Question: "Requests that a full budget holds",
			Assumed: func(p profile.Profile) string { return Requests(value(p.Cloud.RateLimit)) },
		},
		{
			ID: Busy, Question: "The error of a change while another runs on the same network",
			Needs:   Needs{Network: true},
			Assumed: func(p profile.Profile) string { return value(p.Cloud.Busy) },
		},
		{
			ID: EffectShows, Question: "When the API shows what an action does",
			Needs:   Needs{Network: true},
			Assumed: func(p profile.Profile) string { return either(value(p.Cloud.EffectsAtOnce), AtStart, AtEnd) },
		},
		{
			ID: AddressReuse, Question: "The private address that the next server gets, once one was given back",
			Needs:   Needs{Own: Things{Networks: 1}, Servers: 2},
			Assumed: func(p profile.Profile) string { return either(value(p.Cloud.AddressesInTurn), InTurn, Lowest) },
		},
		{
			ID: TargetsPerServer, Question: "A second address of one server as a load balancer's target",
			Needs:   Needs{Servers: 1, LoadBalancer: true},
			Assumed: func(p profile.Profile) string { return either(value(p.Cloud.OneTargetPerServer), Refused, Taken) },
		},
		{
			ID: FloatingReassign, Question: "Assigning a floating IP that another server has",
			Needs:   Needs{Servers: 2, FloatingIP: true},
			Assumed: func(p profile.Profile) string { return either(value(p.Cloud.RefuseReassign), Refused, Moves) },
		},
		{
			ID: ZonePrimaryIPs, Question: "Where a load balancer is placed that is made in a zone, with primary IPs",
			Needs: Needs{Own: Things{LoadBalancers: 2, PrimaryIPs: 2}},
			Assumed: func(p profile.Profile) string {
				return either(value(p.Cloud.ZoneIgnoresPrimaryIPs), ZonesFirst, WherePrimaryIPs)
			},
		},
		{
			ID: ActionTimes, Question: "How long actions take", Quantity: true,
			Needs: Needs{Network: true},
			Assumed: func(p profile.Profile) string {
				var all []float64
				for _, times := range p.Cloud.ActionSeconds {
					all = append(all, times...)
				}
				return Between(seconds(all))
			},
		},
	}
}

// packetFacts are found out by packets of throw-away servers.
func packetFacts() []Fact {
	pair := Needs{Servers: 2, Network: true, Inside: true}
	balanced := Needs{Servers: 1, Network: true, LoadBalancer: true, Inside: true}
	return []Fact{
		{
			ID: RouteEffect, Question: "When a route leads packets, against the end of its action", Quantity: true,
			Needs:   pair,
			Assumed: func(p profile.Profile) string { return Around(seconds(p.Network.RouteSeconds)) },
		},
		{
			ID: SourceCheck, Question: "Packets in the network whose source is not the sender's",
			Needs:   pair,
			Assumed: func(p profile.Profile) string { return either(value(p.Network.AnySource), Forwarded, Dropped) },
		},
		{
			ID: PrivateMTU, Question: "The largest packet between servers in the network",
			Needs:   pair,
			Assumed: func(p profile.Profile) string { return Bytes(value(p.Network.PrivateMTU)) },
		},
		{
			ID: PublicMTU, Question: "The largest packet between public addresses",
			Needs:   Needs{Servers: 2, Inside: true},
			Assumed: func(p profile.Profile) string { return Bytes(value(p.Network.PublicMTU)) },
		},
		{
			ID: SourceIPv6, Question: "Where a load balancer connects to IPv6 addresses of servers from",
			Needs: balanced,
			Assumed: func(p profile.Profile) string {
				return either(value(p.Cloud.IPv6Source) == profile.Own, OwnPublic, OtherAddress)
			},
		},
		{
			ID: ProxyProtocol, Question: "The version of the PROXY protocol that targets get",
			Needs:   balanced,
			Assumed: func(p profile.Profile) string { return Version(value(p.Network.ProxyProtocol)) },
		},
		{
			ID: ProxyInChecks, Question: "Health checks of services with the PROXY protocol",
			Needs: balanced,
			Assumed: func(p profile.Profile) string {
				return either(value(p.Cloud.ProxyHeaderInChecks), WithHeader, WithoutHeader)
			},
		},
		{
			ID: UnjudgedTargets, Question: "Connections while the only target's health is unknown",
			Needs:   balanced,
			Assumed: func(p profile.Profile) string { return either(value(p.Cloud.ServeUnjudged), Served, NotServed) },
		},
	}
}

// orNone renders a time, of which 0 is none.
func orNone(s float64) string {
	if s == 0 {
		return none
	}
	return Took(seconds([]float64{s})[0])
}

// value is what a field of a profile says; a field that says nothing is the zero value.
func value[T any](field *T) (v T) {
	if field != nil {
		v = *field
	}
	return v
}
