package main

// onSegment is a mutant that the simulated segment catches, where machines lose each other and the
// ledger.
func onSegment(m mutant) mutant {
	m.tests, m.run = "./addresses/layer2", "^(TestOneMachineHolds|TestPlannedMoves)$"
	return m
}

// segmentMutants are those of addresses that are held by ARP and neighbor discovery.
func segmentMutants() []mutant {
	const claims, phases = "addresses/layer2/claims.go", "addresses/layer2/phases.go"
	return []mutant{
		onSegment(mutant{
			name: "a holder ignores a newer one", file: claims,
			old: "case newer, p.doubt && !older:", new: "case p.doubt && !older:",
			why: "two would hold the address while the one that is behind has no doubt",
		}),
		onSegment(mutant{
			name: "a holder in doubt gives way to an older one", file: claims,
			old: "case newer, p.doubt && !older:", new: "case newer, p.doubt:",
			why: "both could give way to each other, and nobody would answer",
		}),
		onSegment(mutant{
			name: "nobody looks for others in doubt", file: phases,
			old: "case p.doubt:\n", new: "case false:\n",
			why: "a holder that is cut off from the ledger would not find its successor",
		}),
		onSegment(mutant{
			name: "a holder goes before the next one is heard", file: "addresses/layer2/protocol.go",
			old: "Leaving, now.Add(leaveWait), MAC{}", new: "Leaving, now, MAC{}",
			why: "a planned move would lose packets",
		}),
		{
			name: "a stranger that answers late is not waited for", file: phases,
			old: "	if h.anybodys() {\n		h.probesLeft", new: "	if h.Epoch <= 1 {\n		h.probesLeft",
			why:   "an address that one node left to a stranger would be taken by the next one",
			tests: "./addresses/layer2", run: "^TestTaking$",
		},
		{
			name: "an address that was given up is never taken again", file: phases,
			old: "	case Yielded:\n		p.take(now, h)\n", new: "	case Yielded:\n		h.stepAt = now.Add(silenceWait)\n",
			why:   "nobody would answer once the other one has gone",
			tests: "./addresses/layer2", run: "^TestYielded$",
		},
		{
			name: "an address is taken from a stranger", file: claims,
			old: "	default:\n		p.refuse(now, h, m)\n", new: "	default:\n		p.take(now, h)\n",
			why:   "clients of the stranger would come here",
			tests: "./addresses/layer2", run: "^TestTaking$",
		},
		{
			name: "an answer goes out on another segment", file: claims,
			old: "if h, mine := p.holdings[m.Ask]; mine && h.linked && h.link.Name == link {", new: "if h, mine := p.holdings[m.Ask]; mine && h.linked {",
			why:   "whoever is on another segment may have the address rightly there",
			tests: "./addresses/layer2", run: "^TestHolding$",
		},
	}
}
