package main

// told is a mutant that BIRD catches, as the router of a fabric of namespaces.
func told(test string, m mutant) mutant {
	m.tests, m.run = "./addresses/bgp/speaker", "^"+test+"$"
	return m
}

// routerMutants are those of addresses that routers are told of.
func routerMutants() []mutant {
	const neighbor, policy, plan = "addresses/bgp/speaker/neighbor.go", "addresses/bgp/speaker/policy.go", "addresses/bgp/plan.go"
	return []mutant{
		told("TestASpeakerIsReplaced", mutant{
			name: "a speaker that restarts does not say so", file: neighbor,
			old: "LocalRestarting: restarting && s", new: "LocalRestarting: false && s",
			why: "routers would drop what its predecessor announced",
		}),
		told("TestASpeakerStaysAway", mutant{
			name: "routers keep what was announced for long", file: neighbor,
			old: "RestartTime: uint32(s.Offers.RestartSeconds),", new: "RestartTime: 600,",
			why: "a node that is gone would stay in the router's choice",
		}),
		told("TestNothingIsLearned", mutant{
			name: "what routers announce is taken", file: policy,
			old: "RouteAction_ROUTE_ACTION_REJECT", new: "RouteAction_ROUTE_ACTION_ACCEPT",
			why: "a node would tell one router what another one said, and traffic would pass through it",
		}),
		told("TestTheRouterTellsTooMuch", mutant{
			name: "routers may announce the whole table", file: neighbor,
			old: "MaxPrefixes: maxReceived", new: "MaxPrefixes: 0",
			why: "the agent would be killed for its memory",
		}),
		told("TestAMachineDies", mutant{
			name: "BFD is not begun", file: neighbor,
			old: "	if s.BFD {", new: "	if false {",
			why: "a dead machine would be noticed after the hold time",
		}),
		{
			name: "a new password is not used", file: "addresses/bgp/peer.go",
			old: "p.Password.Reveal() == other.Password.Reveal() && ", new: "",
			why:   "the session would go on with the old one until it breaks, and never come back",
			tests: "./addresses/bgp", run: "^TestDiff$",
		},
		{
			name: "another next hop counts as another prefix", file: plan,
			old: "slices.BinarySearchFunc(paths, p, Path.compare); !stays", new: "slices.BinarySearchFunc(paths, p, Path.compare); !stays || !slices.Contains(paths, p)",
			why:   "the withdrawal comes after the announcement, and would take it back",
			tests: "./addresses/bgp", run: "^(TestDiff|TestAnyWayLeadsThere)$",
		},
	}
}
