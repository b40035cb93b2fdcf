package main

import (
	"bytes"
	"fmt"
	"slices"
)

// A mutant is one guard of the code, broken.
type mutant struct {
	name string
	// file is where the guard is, and old the text, there once, that new replaces.
	file, old, new string
	// why says what harm the guard prevents.
	why string
	// tests is the package whose tests must fail, run which of them, args what they are given.
	tests, run string
	args       []string
}

// apply returns the source with the guard broken.
func (m mutant) apply(source []byte) ([]byte, error) {
	if n := bytes.Count(source, []byte(m.old)); n != 1 {
		return nil, fmt.Errorf("%s has the text of mutant %q %d times, want once: correct test/checks/mutants/table.go\n%s", m.file, m.name, n, m.old)
	}
	return bytes.Replace(source, []byte(m.old), []byte(m.new), 1), nil
}

// scheduled is a mutant that the schedules of node IPAM catch.
func scheduled(m mutant) mutant {
	m.tests, m.run = "./ipam/controller", "^TestNoScheduleOfFaultsMakesAnOverlapOrALeak$"
	m.args = []string{"-schedules", "2000"}
	return m
}

// tested is a mutant that one test of node IPAM catches, because schedules seldom come to it.
func tested(test string, m mutant) mutant {
	m.tests, m.run = "./ipam/controller", "^"+test+"$"
	return m
}

// mutants is the table.
func mutants() []mutant {
	return slices.Concat(ipamMutants(), ledgerMutants(), routeMutants(), balancerMutants(), segmentMutants(), routerMutants(), holdingMutants(), moverMutants(), webuiMutants())
}

// ipamMutants are those of node IPAM.
func ipamMutants() []mutant {
	return []mutant{
		tested("TestAReservationThatWasSentOutlivesAnEdit", mutant{
			name: "a reload forgets a reservation that was sent", file: "ipam/controller/load.go",
			old: "stored.Abandoned = append(stored.Abandoned, h.Prefixes...)",
			new: "stored.Abandoned = append(stored.Abandoned, h.Prefixes[:0]...)",
			why: "a request with the earlier reservation may still arrive: its prefixes must not go to another Node",
		}),
		tested("TestARepairedLedgerIsHeldAgainstLiveNodes", mutant{
			name: "no live list after a repair", file: "ipam/controller/load.go",
			old: "if d.damaged {\n", new: "if false {\n",
			why: "whoever repaired the ledger may have deleted what a Node has that the cache does not show yet",
		}),
		tested("TestARouteTowardAnAbandonedPrefixKeepsTheQuarantine", mutant{
			name: "the quarantine looks at what was reserved last only", file: "ipam/controller/quarantine.go",
			old: "slices.Concat(h.Prefixes, h.Abandoned), func", new: "h.Prefixes, func",
			why: "the Node may have had what was abandoned, and its route may stand",
		}),
		tested("TestAMachineThatCameBackUnseenHasItsPrefixesAgain", mutant{
			name: "no waiting for the namesake", file: "ipam/controller/decide.go",
			old: "return true // the API server is asked about that one", new: "return false // the API server is asked about that one",
			why: "a Node that replaces one of its name may be the same machine: its route stands, and it must get its prefix again",
		}),
		tested("TestAReservationThatWasSentOutlivesItsRecord", mutant{
			name: "a recorded reservation does not count as sent", file: "ipam/controller/load.go",
			old: "n.delivery, n.doubt = max(n.delivery, maybeSent), true", new: "n.doubt = true",
			why: "whoever recorded it may have sent it",
		}),
		tested("TestAReservationThatWasSentOutlivesItsRecord", mutant{
			name: "what this process sent does not count as sent", file: "ipam/controller/decide.go",
			old: "d.ready[0].delivery = sent", new: "d.ready[0].delivery = unsent",
			why: "the request may still arrive after a reload",
		}),
		tested("TestALivingNodesQuarantineNeverEnds", mutant{
			name: "no live check before a quarantine ends", file: "ipam/controller/quarantine.go",
			old: "case n.phase != confirmedGone && d.seen(h.Node):", new: "case false:",
			why: "another process declared the Node gone, and the cache has it",
		}),
		tested("TestAQuarantineThatBeginsInTheFutureEnds", mutant{
			name: "a quarantine that begins in the future", file: "ipam/rebuild.go",
			old: "if h.Released.After(f.Now) {", new: "if false && h.Released.After(f.Now) {",
			why: "a clock that was wrong must not keep prefixes in quarantine for years",
		}),
		scheduled(mutant{
			name: "a reload forgets what was sent and never stored", file: "ipam/controller/load.go",
			old: "case n.delivery != unsent && !h.Observed:", new: "case false:",
			why: "the ledger was edited or lost while a request was on its way",
		}),
		tested("TestAQuarantineOutlivesALostLedger", mutant{
			name: "a reload forgets a quarantine that was never stored", file: "ipam/controller/load.go",
			old: "lost || !d.recorded(h.Node)", new: "false && (lost || !d.recorded(h.Node))",
			why: "the prefixes of a Node that has just gone would be free at once",
		}),
		scheduled(mutant{
			name: "what is not recorded goes out", file: "ipam/controller/decide.go",
			old: "if !d.recorded(n.Node) {", new: "if false {",
			why: "record before handing out",
		}),
		tested("TestAMissingLedgerIsRebuiltAfterTheFence", mutant{
			name: "no fence", file: "ipam/controller/load.go",
			old: "return false, sleep.For(ctx, d.Fence)", new: "return false, nil",
			why: "a request from the lost ledger may still arrive",
		}),
		tested("TestAReservationThatAnotherNodeTookIsNotWrittenAgain", mutant{
			name: "a reservation is kept although another turned up with it", file: "ipam/assign.go",
			old: "l.current(h) && !l.contested(h)", new: "l.current(h)",
			why: "two Nodes would have one prefix",
		}),
		{
			name: "a machine that comes back gets what may not be all it had", file: "ipam/assign.go",
			old: "if len(h.abandoned) > 0 || len(h.prefixes)", new: "if len(h.prefixes)",
			why:   "it may have had what was abandoned, and a route to that may stand",
			tests: "./ipam", run: "^Test",
		},
		scheduled(mutant{
			name: "anybody gets what a namesake had", file: "ipam/assign.go",
			old: `case node.ProviderID == "" || h.node.ProviderID != node.ProviderID || !h.gone()`, new: `case !h.gone()`,
			why: "another machine of that name is not where the route leads",
		}),
		scheduled(mutant{
			name: "a routed prefix is freed", file: "ipam/controller/quarantine.go",
			old: "return !known || routed && !d.ledger.Shared(p)", new: "return !known || false && routed && !d.ledger.Shared(p)",
			why: "traffic for the next holder would go to where the former one was",
		}),
		scheduled(mutant{
			name: "a living Node's route keeps a quarantine for ever", file: "ipam/controller/quarantine.go",
			old: "routed && !d.ledger.Shared(p)", new: "routed",
			why: "the route is toward the living one; the record of the other must end",
		}),
	}
}

// ledgerMutants are those of what the stored ledger says, and of clocks.
func ledgerMutants() []mutant {
	recorded := mutant{file: "ipam/files.go", tests: "./ipam", run: "^TestRecordedOnlyWhereItIsGuarded$"}
	listed, opened := recorded, recorded
	listed.name = "recorded in a shard that the root does not list for it"
	listed.old, listed.new = "if !slices.Equal(f.layout.guards(p), f.ledger.layout.guards(p)) {", "if false && p.IsValid() {"
	listed.why = "another leader reads the root, takes the prefix for the root's and gives it away"
	opened.name = "recorded in a shard that is not open"
	opened.old, opened.new = "object != RootObject && !f.open(object) || ", ""
	opened.why = "somebody with an older root may write the shard's object"
	return []mutant{
		listed, opened,
		tested("TestAQuarantineOfTwoShardsOutlivesOne", mutant{
			name: "a reload forgets what a lost shard had of a quarantine", file: "ipam/controller/load.go",
			old: "keepAll(stored, h)\n", new: "_ = keepAll\n",
			why: "the prefixes of a Node that has gone would be free at once",
		}),
		tested("TestALeaseMadeAnewIsNoFirstStart", mutant{
			name: "the lease alone says who is first", file: "ipam/controller/load.go",
			old: "return manager == fieldManager\n", new: "return false && manager == fieldManager\n",
			why: "a lease that was deleted and made anew never changed hands",
		}),
		tested("TestAnotherLeadersClockEndsNoQuarantine", mutant{
			name: "another leader's clock ends a quarantine", file: "ipam/controller/quarantine.go",
			old: "left <= 0 || left > d.Quarantine", new: "left > d.Quarantine",
			why: "the clock that began it may have been behind",
		}),
		tested("TestAClockThatIsSetBackStretchesNoQuarantine", mutant{
			name: "a clock that was ahead stretches a quarantine", file: "ipam/controller/quarantine.go",
			old: "left <= 0 || left > d.Quarantine", new: "left <= 0",
			why: "Nodes would wait for as long as the clock was wrong",
		}),
		tested("TestOnlyAListAfterTheEndOfANodeEndsItsQuarantine", mutant{
			name: "an older list of routes ends a quarantine", file: "ipam/controller/quarantine.go",
			old: "d.Routed(p, since)", new: "d.Routed(p, time.Time{})",
			why: "the route may have come after it",
		}),
		tested("TestReportedAddressesKeepFewPrefixes", mutant{
			name: "a kubelet's addresses take a pool", file: "ipam/controller/exclude.go",
			old: "len(inside) < kube.MostReported && ", new: "",
			why: "one Node could keep podCIDRs from all others",
		}),
	}
}
