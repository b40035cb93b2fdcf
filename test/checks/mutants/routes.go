package main

// routeMutants are those of the network's route table and of Nodes' servers.
func routeMutants() []mutant {
	routed := func(test string, m mutant) mutant {
		m.tests, m.run = "./routes/controller", "^"+test+"$"
		return m
	}
	return []mutant{
		routed("TestAServerListOlderThanTheRouteReplacesNothing", mutant{
			name: "a route younger than the list of servers is replaced", file: "routes/decide.go",
			old: "case o.Stood != nil:", new: "case false:",
			why: "another manager may have led it to where its server is by now",
		}),
		routed("TestDeletionsThatComeTooLateAreTold", mutant{
			name: "a deletion has no deadline", file: "routes/controller/table.go",
			old: "c.Table.Delete(ctx, s.Old, by)", new: "c.Table.Delete(ctx, s.Old, by.Add(time.Hour))",
			why: "a process that lost its lease would delete what the next leader wrote",
		}),
		{
			name: "a Node of the same server keeps its route", file: "routes/desired.go",
			old: "nodeDst{n.Name, dst}], n.Yields:", new: "nodeDst{n.Name, dst}]:",
			why:   "where the table is full, the Node that exists would wait for the room of its former name",
			tests: "./routes", run: "^TestTwoNodesOfOneServer$",
		},
		routed("TestAnOldCacheDeletesNothing", mutant{
			name: "no live Nodes before a deletion", file: "routes/controller/pass.go",
			old: "		a.podCIDRs = append(a.podCIDRs, prefixes...)\n", new: "		_ = prefixes\n",
			why: "a cache may be older than the Node whose route it is",
		}),
		routed("TestANodeThatWaitsForEverCostsOthersNothing", mutant{
			name: "a Node that waits has a pass run every 2 seconds", file: "routes/controller/serverpoll.go",
			old: "return max(0, n.due.Sub(now))", new: "return max(0, min(n.due.Sub(now), firstPoll))",
			why: "each pass decides about all Nodes, for as long as one waits",
		}),
		{
			name: "a Node is declared absent by a list alone", file: "internal/cloud/instances.go",
			old: "switch _, err := i.Servers.Get(ctx, id); {", new: "switch err := error(ErrNoServer); {",
			why:   "a list may lack a server that exists, and its Node would be deleted",
			tests: "./internal/cloud", run: "^TestAServerThatOnlyTheListLacksExists$",
		},
		{
			name: "what changes of routes rest on is not urgent", file: "internal/cloud/gateways.go",
			old: "	ctx = requests.WithPriority(ctx, requests.Urgent)\n", new: "",
			why:   "while the budget is low, deletions would come too late",
			tests: "./internal/cloud", run: "^TestWhatRoutesRestOnIsUrgent$",
		},
	}
}
