package controller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/kube"
)

func wantCondition(
	t *testing.T, api *fakeAPI, name string, status corev1.ConditionStatus, reason string,
) {
	t.Helper()
	got := kube.Condition(api.live()[name], PodCIDRsAllocated)
	if got == nil || got.Status != status || got.Reason != reason || got.Message == "" {
		t.Errorf("Node %s has the condition %v, want %s because of %s\n%s", name, got, status, reason, api)
	}
}

// Only Nodes that had to wait have the condition: it is written once when they begin to wait, and
// once when they get podCIDRs.
func TestTheConditionOfNodesThatWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(1))
		pass(time.Second)
		api.create("a")
		pass(time.Second)
		api.create("b")
		pass(time.Second)
		wantCondition(t, api, "b", corev1.ConditionFalse, "PoolExhausted")
		for range 5 {
			api.heartbeat("a")
			api.heartbeat("b")
			pass(time.Minute)
		}
		p.stop()
		p = start(t, api, dualStack(1), notFirst)
		defer p.stop()
		pass(time.Minute)
		if n := api.count("PATCH nodes/status"); n != 1 {
			t.Errorf("%d writes of conditions, want 1\n%s", n, api)
		}
		api.delete("a")
		pass(time.Minute)
		wantPodCIDRs(t, api, "b", "10.0.0.0/24", "fd00::/64")
		wantCondition(t, api, "b", corev1.ConditionTrue, "PodCIDRAllocated")
		for range 3 {
			api.heartbeat("b")
			pass(time.Minute)
		}
		if n := api.count("PATCH nodes/status"); n != 2 {
			t.Errorf("%d writes of conditions, want 2\n%s", n, api)
		}
		wantSound(t, api)
	})
}

// A failing write of a condition is tried again, as any other write.
func TestAConditionIsWrittenAgainAfterAFailure(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		api.inject(first("PATCH nodes/status", fault{refuse: true}, fault{drop: true}, fault{page: true}))
		p := start(t, api, dualStack(1))
		defer p.stop()
		pass(time.Second)
		api.create("a")
		pass(time.Second)
		api.create("b")
		pass(time.Minute)
		wantCondition(t, api, "b", corev1.ConditionFalse, "PoolExhausted")
	})
}

// A new reason updates the condition.
func TestTheConditionFollowsTheReason(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, []Pool{forLabel(pool("east", "10.0.0.0/24", 24), "zone=east")})
		defer p.stop()
		pass(time.Second)
		api.add("a", withLabel("zone", "east"))
		api.create("b")
		pass(time.Second)
		wantCondition(t, api, "b", corev1.ConditionFalse, "NoPool")
		api.edit("b", withLabel("zone", "east"))
		pass(time.Second)
		wantCondition(t, api, "b", corev1.ConditionFalse, "PoolExhausted")
	})
}
