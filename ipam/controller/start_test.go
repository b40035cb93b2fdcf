package controller

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestExistingPodCIDRsAreAdoptedAndNeverWritten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		api.create("oldest", "10.0.2.0/24", "fd00::/64")
		pass(time.Second)
		api.create("duplicate", "10.0.2.0/24", "fd00:0:0:1::/64")
		api.create("elsewhere", "192.168.0.0/24")
		api.create("half", "10.0.3.128/25")
		api.edit("half", func(n *corev1.Node) { n.CreationTimestamp = metav1.Now() })
		api.create("odd", "010.0.1.0/24")
		api.create("broken", "ten/24")
		for range 2 {
			p := start(t, api, dualStack(8), excluding("10.0.0.0/24"))
			pass(time.Minute)
			api.heartbeat("duplicate")
			pass(time.Minute)
			for _, want := range []string{
				"duplicate Warning DuplicatePodCIDR Node duplicate has the podCIDR 10.0.2.0/24, but Node oldest had 10.0.2.0/24 before",
				"elsewhere Warning ForeignPodCIDR Node elsewhere has the podCIDR 192.168.0.0/24",
				"half Warning ForeignPodCIDR Node half has the podCIDR 10.0.3.128/25",
				"half Warning MissingPodCIDR Node half has the podCIDR 10.0.3.128/25, but none of the address family IPv6 of the pools",
				"elsewhere Warning MissingPodCIDR Node elsewhere has the podCIDR 192.168.0.0/24",
				"odd Warning MissingPodCIDR Node odd has the podCIDR 10.0.1.0/24",
				"broken Warning ForeignPodCIDR node broken has a podCIDR that is no prefix (\"ten/24\")",
			} {
				if got := p.events.of(want); len(got) != 1 {
					t.Errorf("events %q, want one %q; all: %q", got, want, p.events.of(""))
				}
			}
			if got := p.events.of(""); len(got) != 7 {
				t.Errorf("%d events, want 7: %q", len(got), got)
			}
			p.wantMetric(t, rangesMetric, 1, "excluded")
			p.wantMetric(t, rangesMetric, 1, "foreign")
			p.wantMetric(t, "underlay_ipam_allocations_total", 0)
			p.stop()
		}
		if api.sent() != 0 {
			t.Errorf("%d PATCH requests for Nodes that have podCIDRs", api.sent())
		}
		p := start(t, api, dualStack(8), excluding("10.0.0.0/24"))
		defer p.stop()
		api.create("new")
		pass(time.Minute)
		wantPodCIDRs(t, api, "new", "10.0.4.0/24", "fd00:0:0:2::/64")
	})
}

func TestNothingIsAssignedBeforeEverythingIsObserved(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		api.create("old", "10.0.0.0/24", "fd00::/64")
		api.create("new")
		blocked := true
		api.inject(func(c call) fault {
			return fault{refuse: blocked && (c.kind == "GET configmaps" || c.kind == "LIST nodes")}
		})
		p := start(t, api, dualStack(2))
		defer p.stop()
		pass(10 * time.Minute)
		if api.sent() != 0 {
			t.Fatalf("%d PATCH requests before the Nodes could be listed", api.sent())
		}
		api.Lock()
		blocked = false
		api.Unlock()
		pass(10 * time.Minute)
		wantPodCIDRs(t, api, "new", "10.0.1.0/24", "fd00:0:0:1::/64")
	})
}

// The cache of a new process may be older than that of the one before.
func TestARestartWithAnOldCacheMakesNoDuplicates(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(2))
		pass(time.Second)
		api.stall()
		api.create("a")
		api.create("b")
		p.stop()
		api.resume()
		p = start(t, api, dualStack(2))
		pass(time.Second)
		p.stop()
		api.create("c")
		a, b := api.podCIDRs("a"), api.podCIDRs("b")

		api.Lock()
		api.StallAt(api.nodes, 3) // a and b without podCIDRs, no c
		api.Unlock()
		p = start(t, api, dualStack(2))
		defer p.stop()
		pass(time.Minute)
		p.wantMetric(t, rangesMetric, 0, "free")
		// b is deleted before the cache ever shows its podCIDRs, and d before the cache shows d.
		api.create("d", "10.9.0.0/24")
		api.delete("b")
		api.delete("d")
		api.resume()
		pass(time.Minute)
		if got := api.podCIDRs("a"); !slices.Equal(got, a) || len(a) != 2 {
			t.Errorf("Node a had %v and has %v now", a, got)
		}
		if got := api.podCIDRs("c"); !slices.Equal(got, b) {
			t.Errorf("Node c has %v, want what b had: %v", got, b)
		}
		if api.sent() != 3 {
			t.Errorf("%d PATCH requests for 3 Nodes", api.sent())
		}
	})
}

// Only the live list shows the Node; the cache never does.
func TestANodeTheCacheNeverShowsIsReleasedWhenGone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		api.create("first")
		api.stall()
		api.create("ghost", "10.0.0.0/24", "fd00::/64")
		p := start(t, api, dualStack(1))
		defer p.stop()
		pass(time.Minute)
		wantPodCIDRs(t, api, "first")
		api.delete("ghost")
		pass(20 * time.Minute)
		wantPodCIDRs(t, api, "first", "10.0.0.0/24", "fd00::/64")
	})
}
