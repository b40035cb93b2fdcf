package main

import "cmp"

// balancerMutants are faults that load balancers had, each of which cost traffic or requests. The
// random schedule catches them, or where it doesn't come to what they cost, the test that is named.
func balancerMutants() []mutant {
	all := []mutant{
		{
			name: "a changed check waits for healthy targets", file: "lb/plan.go",
			old: "	spec, p.Again = spec.Step(have)\n",
			new: "	if len(have.Unserved()) > 0 {\n		spec = spec.KeepChecks(ByPort(have.Listeners))\n	}\n	spec, p.Again = spec.Step(have)\n",
			why: "a release that changes the check's path would keep the path that no pod answers",
		},
		{
			name: "a load balancer goes before the shared one serves", file: "lb/controller/members.go",
			old: "	other := KeyOf(svc, v.defaults)\n",
			new: "	other := KeyOf(svc, v.defaults)\n	if other.Group != \"\" {\n		return false\n	}\n",
			why: "a Service that asks for a shared one which is not its cluster's would have none",
		},
		{
			name: "the label of a group is lost", file: "lb/state.go",
			old: "o.Owns(s.Labels) || lost", new: "o.Owns(s.Labels) || lost && false",
			why: "its Services would find no load balancer",
			run: "^TestTheLabelOfAGroupIsLost$",
		},
		{
			name: "the public interface waits for healthy targets", file: "lb/diff.go",
			old: "	closes := !want.Public && have.Public\n",
			new: "	closes := !want.Public && have.Public && len(have.Unserved()) == 0\n",
			why: "a load balancer that is to be private would stay public",
		},
		{
			name: "ports open before the public interface is off", file: "lb/diff.go",
			old: "	if closes {", new: "	if closes && false {",
			why: "what was asked to be private would be reachable",
		},
		{
			name: "pods leave as soon as they are not ready", file: "lb/controller/damping.go",
			old: "		case len(e.pods.Targets) == 0, after(f.since.Add(leavesAfter)):", new: "		case false:",
			why: "some seconds without a ready pod would leave no target",
			run: "^TestPodsThatAreNotReadyForSeconds$",
		},
		{
			name: "pods are not damped", file: "lb/controller/damping.go",
			old: "	if d == nil {", new: "	if d != nil {",
			why: "one flapping pod would cost thousands of requests",
		},
		{
			name: "a frozen port does not follow its node port", file: "lb/share.go",
			old: "		l.DestinationPort = to\n", new: "",
			why: "Kubernetes gives the node port to another Service",
		},
		{
			name: "addresses of a deleted load balancer stay", file: "lb/controller/report.go",
			old: "(o.transient != nil || foreign(svc)",
			new: "(o.transient != nil || condition(o.notesOf(i)).Status == metav1.ConditionFalse || foreign(svc)",
			why: "clients would be sent to addresses of nobody",
		},
		{
			name: "what the cloud refuses is not backed off from", file: "lb/controller/backoff.go",
			old: "longestRetry = time.Hour", new: "longestRetry = firstRetry",
			why: "a refused type would cost hundreds of requests in an hour",
		},
		{
			name: "a freed name is not noticed", file: "lb/controller/sync.go",
			old: "range c.backoff.reset(isNotOwned) {", new: "range c.backoff.reset(func(error) bool { return false }) {",
			why: "nothing would serve under it for minutes",
		},
		{
			name: "a name that is taken stops the rest", file: "lb/ops.go",
			old: "case Create, SetLabels, ChangeType,", new: "case Rename, Create, SetLabels, ChangeType,",
			why: "reverse DNS would not follow the Service",
		},
	}
	for i := range all {
		all[i].tests, all[i].run = "./lb/controller", cmp.Or(all[i].run, "^TestRandomSchedule$")
	}
	return all
}
