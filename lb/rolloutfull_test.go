package lb_test

import (
	"slices"
	"testing"

	"github.com/underlay-ccm/underlay/lb"
)

// In a full load balancer, the only node with endpoints is a target beside the healthy one that
// leaves, and targets that can't become healthy give room, without being replaced by other such.
func TestTheOnlyNodeWithEndpointsIsATarget(t *testing.T) {
	servers := func(ids ...int64) []lb.Target {
		return lb.Spec{}.WithTargets(nodesOf(ids)).Targets
	}
	var present []int64 // 24, and 29
	for id := range int64(24) {
		present = append(present, id+1)
	}
	svc, d := plain()
	want := parse(t, svc, d)
	want.Targets = servers(append(slices.Clone(present), 31)...)
	have := lb.State{
		ID: 1, Type: want.Type, Listeners: want.Listeners,
		Targets:      servers(append(slices.Clone(present), 29)...),
		CheckResults: lb.CheckResults{Verdicts: map[int]map[lb.Target]lb.Verdict{}},
	}
	for _, l := range want.Listeners {
		have.Verdicts[l.Port] = map[lb.Target]lb.Verdict{}
		for _, target := range have.Targets {
			have.Verdicts[l.Port][target] = lb.Unhealthy
		}
		have.Verdicts[l.Port][servers(29)[0]] = lb.Healthy
	}
	possible := func(target lb.Target) bool { return target == servers(31)[0] }
	now, waits, _ := lb.Rollout{Expected: possible, Possible: possible}.Next(want, have)
	if !waits || !slices.Contains(now.Targets, servers(31)[0]) ||
		!slices.Contains(now.Targets, servers(29)[0]) || len(now.Targets) > 25 {
		t.Fatalf("waits %t, targets %v", waits, now.Targets)
	}
	have.Targets = now.Targets
	again, _, _ := lb.Rollout{Expected: possible, Possible: possible}.Next(want, have)
	if !slices.Equal(slices.SortedFunc(slices.Values(again.Targets), lb.Target.Compare),
		slices.SortedFunc(slices.Values(now.Targets), lb.Target.Compare)) {
		t.Errorf("the next plan has %v", again.Targets)
	}
}
