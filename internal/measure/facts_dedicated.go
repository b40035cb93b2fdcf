package measure

import (
	"slices"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
)

// dedicatedFacts are found out with a dedicated server of the user's.
func dedicatedFacts() []Fact {
	crossed := Needs{Servers: 1, Network: true, Inside: true, Dedicated: true, VSwitch: true}
	return []Fact{
		{
			ID: VSwitchSubnets, Question: "A second subnet of type vswitch in a network",
			Needs:   Needs{Network: true, VSwitch: true},
			Assumed: func(p profile.Profile) string { return either(value(p.Cloud.OneVSwitchSubnet), Refused, Taken) },
		},
		{
			ID: IPv6Targets, Question: "An IPv6 address of a dedicated server as a load balancer's target",
			Needs:   Needs{LoadBalancer: true, Dedicated: true},
			Assumed: func(p profile.Profile) string { return either(value(p.Cloud.RefuseIPv6Targets), Refused, Taken) },
		},
		{
			ID: VSwitchMTU, Question: "The largest packet between a server and the vSwitch",
			Needs:   crossed,
			Assumed: func(p profile.Profile) string { return Bytes(value(p.Network.VSwitchMTU)) },
		},
		{
			ID: VSwitchSource, Question: "Packets from the vSwitch whose source is not in its subnet",
			Needs: crossed,
			Assumed: func(p profile.Profile) string {
				return either(value(p.Network.VSwitchAnySource), Forwarded, Dropped)
			},
		},
		{
			ID: ProxyARP, Question: "An answer to ARP of the vSwitch's gateway that a host gives for another",
			Needs:   crossed,
			Assumed: func(p profile.Profile) string { return either(value(p.Network.RefuseProxied), Refused, Taken) },
		},
		{
			ID: Neighbors, Question: "How many hosts the vSwitch's gateway knows at most",
			Needs: crossed,
			Assumed: func(p profile.Profile) string {
				if n := value(p.Network.Neighbors); n > 0 {
					return Hosts(n)
				}
				return AsManyAsTried
			},
		},
	}
}

// robotFacts are found out by the Robot web service.
func robotFacts() []Fact {
	return []Fact{
		{
			ID: RobotLatency, Question: "How long a request to Robot that reads takes, the median", Quantity: true,
			Needs:   Needs{Robot: true},
			Assumed: func(p profile.Profile) string { return orNone(value(p.Robot.LatencySeconds)) },
		},
		{
			ID: RobotLogin, Question: "The status of a login that fails; three of them block for 10 minutes",
			Needs:   Needs{Robot: true, Named: true},
			Assumed: func(p profile.Profile) string { return either(value(p.Robot.ForbiddenLogin), "403", "401") },
		},
		{
			ID: RobotMembers, Question: "The status of a vSwitch's member that is being changed",
			Needs: Needs{Robot: true, Dedicated: true},
			Assumed: func(p profile.Profile) string {
				return either(value(p.Robot.Processing), "processing", "in process")
			},
		},
	}
}

// Touched says, in sentences, what facts do for a while to what isn't thrown away: the user's
// dedicated server, vSwitch and Robot account.
func Touched(facts []FactID) (sentences []string) {
	any := func(of ...FactID) bool {
		return slices.ContainsFunc(of, func(f FactID) bool { return slices.Contains(facts, f) })
	}
	crossed := any(VSwitchMTU, VSwitchSource, ProxyARP, Neighbors)
	if crossed || any(VSwitchSubnets) {
		sentences = append(sentences, "Your vSwitch is coupled with a throw-away network for some minutes.")
	}
	if crossed {
		sentences = append(sentences, "Your dedicated server gets an address of that network and a route on its interface in the vSwitch, "+
			"and answers ARP there; this is changed back, and the program on it ends.")
	}
	if any(IPv6Targets) {
		sentences = append(sentences, "Addresses of your dedicated server are targets of the throw-away load balancer for a moment.")
	}
	if any(RobotMembers) {
		sentences = append(sentences, "At Robot a vSwitch is made, your dedicated server is in it for a moment, and it is cancelled.")
	}
	if any(RobotLogin) {
		sentences = append(sentences, "One login at Robot fails on purpose.")
	}
	return sentences
}
