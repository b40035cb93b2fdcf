package main

// holdingMutants are those of a machine that holds addresses as the ledger says.
func holdingMutants() []mutant {
	const file = "addresses/agent/agent.go"
	held := func(test string, m mutant) mutant {
		m.tests, m.run = "./addresses/agent", "^"+test+"$"
		return m
	}
	return []mutant{
		held("TestStartedAgainWithoutTheAPIServer", mutant{
			name: "a restart forgets what was held", file: file,
			old: "	a.known = known\n", new: "	a.known = Knowledge{}\n",
			why: "an agent that is replaced while the API server is away would fall silent",
		}),
		held("TestOneNodeAnswersForWhatManyAnnounce", mutant{
			name: "all nodes answer for what all announce", file: "addresses/agent/decide.go",
			old: "|| alone(e) == self)", new: "|| true)",
			why: "they would take the address from each other until the pool's mover is the same everywhere",
		}),
		held("TestNothingIsReportedInIgnorance", mutant{
			name: "a node reports before it knows anything", file: file,
			old: "	if !read {", new: "	if read && false {",
			why: "the report of the run before would be replaced by one that says nothing",
		}),
		held("TestHeldAddressesAreTold", mutant{
			name: "what is to be held is not filtered", file: file,
			old: "			holding = append(holding, h.Address)\n", new: "			_ = h\n",
			why: "packets for it that no Service takes would be sent back to where they came from",
		}),
		held("TestSilence", mutant{
			name: "a node's own kube-proxy is nobody's business", file: file,
			old: "report.Unfit = unfit()", new: "_ = unfit()",
			why: "addresses would stay where no Service is served",
		}),
		held("TestAConnectionThatLeadsNowhere", mutant{
			name: "a connection is believed in for long", file: "addresses/agent/connection_linux.go",
			old: "SendPingTimeout: pingEvery", new: "SendPingTimeout: time.Hour",
			why: "a node that is cut off would defend addresses that others hold by now",
		}),
	}
}
