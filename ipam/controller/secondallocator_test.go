package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

const kcm = "kube-controller-manager"

// Another allocator appears in managedFields: allocation stops, until a Node has waited for a
// minute without podCIDRs.
func TestASecondAllocatorStopsAllocation(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(8))
		defer p.stop()
		pass(time.Minute)
		api.add("theirs", setBy(kcm, "10.0.0.0/24", "fd00::/64"))
		pass(time.Second)
		got := p.events.of("theirs Warning SecondAllocator")
		if len(got) != 1 || !strings.Contains(got[0], kcm) || !strings.Contains(got[0], "--allocate-node-cidrs=false") {
			t.Errorf("events %q, want one SecondAllocator that names who and the remedy", got)
		}
		api.create("waits")
		pass(50 * time.Second)
		wantPodCIDRs(t, api, "waits")
		p.events.want(t, 1, "waits Warning SecondAllocator")
		p.wantMetric(t, "underlay_ipam_second_allocator", 1)
		p.wantMetric(t, "underlay_ipam_waiting_nodes", 1)
		if api.sent() != 0 {
			t.Errorf("%d PATCH requests beside another allocator", api.sent())
		}
		pass(12 * time.Second)
		wantPodCIDRs(t, api, "waits", "10.0.1.0/24", "fd00:0:0:1::/64")
		api.create("next")
		pass(time.Second)
		wantPodCIDRs(t, api, "next", "10.0.2.0/24", "fd00:0:0:2::/64")
		p.wantMetric(t, "underlay_ipam_second_allocator", 0)
		p.wantMetric(t, "underlay_ipam_waiting_nodes", 0)
		wantSound(t, api)
	})
}

// Allocation stays stopped as long as the other allocator sets podCIDRs.
func TestASecondAllocatorThatGoesOnKeepsAllocationStopped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(64))
		defer p.stop()
		pass(time.Minute)
		api.add("n0", setBy(kcm, "10.0.0.0/24", "fd00::/64"))
		pass(time.Second)
		for i := 1; i < 10; i++ {
			name := fmt.Sprint("n", i)
			api.create(name)
			pass(20 * time.Second)
			api.edit(name, setBy(kcm, fmt.Sprintf("10.0.%d.0/24", i), fmt.Sprintf("fd00:0:0:%x::/64", i)))
			pass(20 * time.Second)
		}
		if n := api.sent(); n > 0 {
			t.Errorf("%d PATCH requests while another allocator was at work", n)
		}
		wantSound(t, api)
	})
}

// The admission policy rejects podCIDRs from others, so attempts of another allocator are harmless.
func TestTheAdmissionPolicyMakesASecondAllocatorHarmless(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(8))
		defer p.stop()
		pass(time.Minute)
		api.add("theirs", setBy(kcm, "10.0.0.0/24", "fd00::/64"))
		pass(time.Second)
		api.Lock()
		api.policy = true
		api.Unlock()
		api.create("a")
		pass(5 * time.Second)
		wantPodCIDRs(t, api, "a", "10.0.1.0/24", "fd00:0:0:1::/64")
		if n := api.count("GET validatingadmissionpolicies"); n > 2 {
			t.Errorf("the policy was asked for %d times", n)
		}
	})
}

// podCIDRs that were set before the ledger existed are the history of a cluster that moved here.
// Users and kubelets may set podCIDRs.
func TestOtherPodCIDRSettersAreNoSecondAllocator(t *testing.T) {
	for _, manager := range []string{"kubectl", "kubectl-edit", "kubelet", "kubeadm"} {
		t.Run(manager, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				api := newFakeAPI()
				api.add("moved", setBy(kcm, "10.0.0.0/24", "fd00::/64"))
				pass(time.Minute)
				p := start(t, api, dualStack(8))
				defer p.stop()
				pass(time.Minute)
				api.add("theirs", setBy(manager, "10.0.1.0/24", "fd00:0:0:1::/64"))
				pass(time.Second)
				api.create("a")
				pass(time.Second)
				wantPodCIDRs(t, api, "a", "10.0.2.0/24", "fd00:0:0:2::/64")
				p.events.want(t, 0, "")
			})
		})
	}
}

// The next process finds podCIDRs that another allocator set while no process ran. Once the other
// one has been found inactive, its old entries stop nothing any more.
func TestSignsOfASecondAllocatorAfterARestart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(8))
		pass(time.Minute)
		p.stop()
		api.add("theirs", setBy(kcm, "10.0.0.0/24", "fd00::/64"))
		pass(time.Second)

		p = start(t, api, dualStack(8), notFirst)
		pass(time.Second)
		api.create("a")
		pass(30 * time.Second)
		wantPodCIDRs(t, api, "a")
		pass(time.Minute)
		wantPodCIDRs(t, api, "a", "10.0.1.0/24", "fd00:0:0:1::/64")
		p.stop()

		p = start(t, api, dualStack(8), notFirst)
		defer p.stop()
		pass(time.Second)
		api.create("b")
		pass(time.Second)
		wantPodCIDRs(t, api, "b", "10.0.2.0/24", "fd00:0:0:2::/64")
	})
}
