package controller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// touchedBy sets the time of a manager's entry, as a later write of any other field does.
func touchedBy(manager string, at time.Time) shape {
	return func(n *corev1.Node) {
		for i := range n.ManagedFields {
			if n.ManagedFields[i].Manager == manager {
				moved := metav1.NewTime(at)
				n.ManagedFields[i].Time = &moved
			}
		}
	}
}

// kube-controller-manager once set a Node's podCIDRs beside this controller, and was reconfigured
// to stop. It continues to set taints, which changes the time of its entry. A restart must not
// report it.
func TestAFormerAllocatorThatSetsTaintsIsNoSecondOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(8))
		pass(time.Minute)
		api.add("theirs", setBy(kcm, "10.0.0.0/24", "fd00::/64"))
		pass(time.Second)
		api.create("a")
		pass(90 * time.Second)
		wantPodCIDRs(t, api, "a", "10.0.1.0/24", "fd00:0:0:1::/64")
		p.stop()
		api.edit("theirs", func(n *corev1.Node) { touchedBy(kcm, time.Now())(n) })

		p = start(t, api, dualStack(8), notFirst)
		defer p.stop()
		pass(time.Second)
		api.create("b")
		pass(time.Second)
		wantPodCIDRs(t, api, "b", "10.0.2.0/24", "fd00:0:0:2::/64")
		p.wantMetric(t, "underlay_ipam_second_allocator", 0)
		p.events.want(t, 0, "")
	})
}

// The API server's clock is ahead of the controller's, and the cluster moves here: the writes of
// the former allocator are in the future by the controller's clock, and are past nevertheless.
func TestAClockThatIsAheadMakesNoSecondAllocator(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		api.add("moved", setBy(kcm, "10.0.0.0/24", "fd00::/64"))
		api.edit("moved", touchedBy(kcm, time.Now().Add(3*time.Minute)))
		p := start(t, api, dualStack(8))
		defer p.stop()
		pass(time.Second)
		api.create("a")
		pass(time.Second)
		wantPodCIDRs(t, api, "a", "10.0.1.0/24", "fd00:0:0:1::/64")
		p.wantMetric(t, "underlay_ipam_second_allocator", 0)
		p.events.want(t, 0, "")
	})
}

// A Node has more than ten managers: the API server no longer records the one that set its
// podCIDRs.
func TestForgottenManagersAreNoSecondAllocator(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(8))
		defer p.stop()
		pass(time.Minute)
		api.add("busy", setBy("ancient-changes", "10.0.0.0/24", "fd00::/64"))
		pass(time.Second)
		api.create("a")
		pass(time.Second)
		wantPodCIDRs(t, api, "a", "10.0.1.0/24", "fd00:0:0:1::/64")
		p.events.want(t, 0, "")
	})
}

// A Node under a reused name must not wait longer for its provider ID because the API server's
// clock is ahead.
func TestAClockThatIsAheadMakesNoLongerWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(8), quarantine(10*time.Minute))
		defer p.stop()
		pass(time.Second)
		api.add("a", onMachine("cloud://1"))
		pass(time.Second)
		api.delete("a")
		pass(time.Second)
		api.add("a", func(n *corev1.Node) { n.CreationTimestamp = metav1.NewTime(time.Now().Add(3 * time.Minute)) })
		pass(comeback + 2*time.Second)
		wantPodCIDRs(t, api, "a", "10.0.1.0/24", "fd00:0:0:1::/64")
	})
}
