package lb_test

import (
	"slices"
	"testing"

	"github.com/underlay-ccm/underlay/lb"
)

// In a full load balancer, the only node with endpoints becomes a target beside the healthy one
// that leaves, in place of one that can't become healthy; such are not replaced by others.
func TestTheOnlyNodeWithEndpointsIsATarget(t *testing.T) {
	servers := func(ids ...int64) []lb.Target { return lb.Spec{}.WithTargets(nodesOf(ids)).Targets }
	var useless, all []int64
	for id := range int64(31) {
		if all = append(all, id+1); id >= 4 && id < 28 { // 24, of which 1 to 4 are not present
			useless = append(useless, id+1)
		}
	}
	leaving, only := servers(29)[0], servers(31)[0]
	svc, d := plain()
	spec := parse(t, svc, d)
	spec.Targets = servers(slices.DeleteFunc(all, func(id int64) bool { return id == 29 })...)
	have := lb.State{
		ID: 1, Type: spec.Type, Listeners: spec.Listeners,
		Targets:      append(servers(useless...), leaving),
		CheckResults: lb.CheckResults{Verdicts: map[int]map[lb.Target]lb.Verdict{}},
	}
	for _, l := range spec.Listeners {
		have.Verdicts[l.Port] = healthOf(lb.Unhealthy, servers(useless...)...)
		have.Verdicts[l.Port][leaving] = lb.Healthy
	}
	possible := func(target lb.Target) bool { return target == only }
	for pass := range 5 {
		want, _ := spec.Fit(have, nodesOf([]int64{31}))
		now, waits, _ := lb.Rollout{Expected: possible, Possible: possible}.Next(want, have)
		both := slices.Contains(now.Targets, only) && slices.Contains(now.Targets, leaving)
		if !waits || !both || len(now.Targets) > 25 {
			t.Fatalf("pass %d: waits %t, targets %v", pass, waits, now.Targets)
		}
		changed := 0
		for _, target := range now.Targets {
			if !slices.Contains(have.Targets, target) {
				changed++
			}
		}
		if changed != map[bool]int{true: 1}[pass == 0] {
			t.Errorf("pass %d: %d targets are new: %v", pass, changed, now.Targets)
		}
		have.Targets = now.Targets
	}
}
