package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"
)

func TestFiftyNodesAtOnceTakeFiftyPatches(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(64))
		defer p.stop()
		pass(time.Second)
		for i := range 50 {
			api.create(fmt.Sprint("node-", i))
		}
		pass(10 * time.Second)
		seen := map[string]string{}
		for name, node := range api.live() {
			if len(node.Spec.PodCIDRs) != 2 || node.Spec.PodCIDR != node.Spec.PodCIDRs[0] {
				t.Errorf("Node %s has %q and %q, want one of each family", name, node.Spec.PodCIDR, node.Spec.PodCIDRs)
			}
			for _, text := range node.Spec.PodCIDRs {
				if other, twice := seen[text]; twice {
					t.Errorf("%s and %s both have %s", name, other, text)
				}
				seen[text] = name
			}
		}
		if api.sent() != 50 {
			t.Errorf("%d PATCH requests for 50 Nodes", api.sent())
		}
	})
}

// This is the failure of other allocators that this package exists to avoid: the reply to an
// applied PATCH is lost, the watch delivers nothing, and the only prefix is assigned to the next
// Node.
func TestALostReplyDoesNotFreeThePrefix(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(1))
		defer p.stop()
		pass(time.Second)
		api.inject(first("PATCH nodes", fault{delay: time.Second, lose: true}))
		api.create("a")
		api.create("b")
		pass(0)
		api.stall()
		pass(time.Hour)
		wantPodCIDRs(t, api, "a", "10.0.0.0/24", "fd00::/64")
		wantPodCIDRs(t, api, "b")
		if api.sent() != 1 {
			t.Errorf("%d PATCH requests, want 1: a GET shows that the first was applied", api.sent())
		}
		if got := p.events.of("b Warning PoolExhausted"); len(got) != 1 {
			t.Errorf("events %q, want one PoolExhausted for b", got)
		}
		p.wantMetric(t, "underlay_ipam_allocations_total", 1)
	})
}

func TestUnknownOutcomesEndWithOneWrite(t *testing.T) {
	for name, faults := range map[string][]fault{
		"refused":               {{refuse: true}, {refuse: true}},
		"404 by a proxy":        {{page: true}, {page: true}},
		"lost twice":            {{lose: true}, {lose: true}},
		"applied much later":    {{late: time.Minute}},
		"slower than patience":  {{delay: 2 * attemptTimeout}},
		"late and refused next": {{late: 20 * time.Millisecond}, {refuse: true}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				api := newFakeAPI()
				api.inject(first("PATCH nodes", faults...))
				p := start(t, api, dualStack(2))
				defer p.stop()
				pass(time.Second)
				uid := api.create("a")
				pass(10 * time.Minute)
				wantPodCIDRs(t, api, "a", "10.0.0.0/24", "fd00::/64")
				if api.writes[uid] != 1 {
					t.Errorf("podCIDRs were written %d times", api.writes[uid])
				}
				p.wantMetric(t, rangesMetric, 2, "allocated")
				p.wantMetric(t, "underlay_ipam_allocations_total", 1)
				p.wantMetric(t, "underlay_ipam_conflicts_total", 0)
			})
		})
	}
}

func TestPodCIDRsThatOthersSetReplaceTheReservation(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(2))
		defer p.stop()
		pass(time.Second)
		// A slow request lets another writer set podCIDRs first, and the watch delivers nothing.
		api.inject(first("PATCH nodes", fault{delay: 5 * time.Second}))
		api.create("a")
		pass(time.Second)
		api.stall()
		api.edit("a", setPodCIDRs("192.168.1.0/24"))
		pass(time.Minute)
		if api.sent() != 1 {
			t.Errorf("%d PATCH requests, want 1: podCIDRs never change again", api.sent())
		}
		p.wantMetric(t, "underlay_ipam_conflicts_total", 1)
		p.wantMetric(t, rangesMetric, 4, "free")
		if got := p.events.of("a Warning ForeignPodCIDR"); len(got) != 1 {
			t.Errorf("events %q, want one ForeignPodCIDR", got)
		}
	})
}

func TestPodCIDRsOfADifferentReplyCount(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		api.inject(first("PATCH nodes", fault{cutDown: true}))
		p := start(t, api, dualStack(2))
		defer p.stop()
		pass(time.Second)
		api.create("a")
		pass(time.Minute)
		wantPodCIDRs(t, api, "a", "10.0.0.0/24")
		if api.sent() != 1 {
			t.Errorf("%d PATCH requests, want 1", api.sent())
		}
		p.wantMetric(t, "underlay_ipam_conflicts_total", 1)
		p.wantMetric(t, rangesMetric, 1, "allocated")
	})
}

func TestANodeCreatedAnewIsAnotherOwner(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(1))
		defer p.stop()
		pass(time.Second)
		api.inject(first("PATCH nodes", fault{delay: 5 * time.Second}))
		api.create("a")
		pass(time.Second)
		api.stall()
		api.delete("a")
		api.create("a")
		pass(time.Minute)
		wantPodCIDRs(t, api, "a") // the API server rejected the first one's PATCH because of its UID
		p.wantMetric(t, rangesMetric, 0, "allocated")
		api.resume()
		pass(time.Minute)
		wantPodCIDRs(t, api, "a", "10.0.0.0/24", "fd00::/64")
		p.wantMetric(t, rangesMetric, 2, "allocated")
	})
}

func TestAFullPoolServesTheLongestWaitingNodeAfterARelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(2))
		defer p.stop()
		pass(time.Second)
		for _, name := range []string{"a", "b", "c", "d"} {
			api.create(name)
			pass(time.Second)
		}
		for range 5 {
			api.heartbeat("c")
			api.heartbeat("d")
			pass(time.Minute)
		}
		if api.sent() != 2 {
			t.Errorf("%d PATCH requests, want 2", api.sent())
		}
		for _, name := range []string{"c", "d"} {
			if got := p.events.of(name + " Warning PoolExhausted"); len(got) != 1 {
				t.Errorf("events %q, want one for %s", got, name)
			}
		}
		api.delete("b")
		pass(15 * time.Second)
		wantPodCIDRs(t, api, "c", "10.0.1.0/24", "fd00:0:0:1::/64")
		wantPodCIDRs(t, api, "d")
		api.delete("a")
		pass(15 * time.Second)
		wantPodCIDRs(t, api, "d", "10.0.0.0/24", "fd00::/64")
		p.wantMetric(t, "underlay_ipam_releases_total", 2)
	})
}

func TestWaitingNodesThatGoAreForgotten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(1))
		defer p.stop()
		pass(time.Second)
		for _, name := range []string{"a", "b", "c", "d"} {
			api.create(name)
			pass(time.Second)
		}
		api.delete("b")
		api.edit("c", beingDeleted)
		pass(time.Second)
		api.delete("a")
		pass(15 * time.Second)
		wantPodCIDRs(t, api, "c") // it is being deleted
		wantPodCIDRs(t, api, "d", "10.0.0.0/24", "fd00::/64")
	})
}

// While the outcome of a write is unknown, another Node is observed with the same prefix. Sending
// the request again would make a known duplicate.
func TestAReservationThatAnotherNodeTookIsNotWrittenAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		api.inject(first("PATCH nodes", fault{refuse: true}))
		p := start(t, api, dualStack(2))
		defer p.stop()
		pass(time.Second)
		api.create("a")
		api.create("b", "10.0.0.0/24", "fd00::/64")
		pass(time.Minute)
		wantPodCIDRs(t, api, "a", "10.0.1.0/24", "fd00:0:0:1::/64")
		p.wantMetric(t, rangesMetric, 4, "allocated")

		api.inject(first("PATCH nodes", fault{refuse: true}))
		api.delete("a")
		api.create("c")
		api.create("d", "10.0.1.0/24", "fd00:0:0:1::/64")
		pass(time.Minute)
		wantPodCIDRs(t, api, "c")
		if got := p.events.of("c Warning PoolExhausted"); len(got) != 1 {
			t.Errorf("events %q, want one PoolExhausted: c's prefixes are d's", got)
		}
	})
}

func TestNewRejects(t *testing.T) {
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://fake", Transport: newFakeAPI()})
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Client: client, Nodes: informers.NewSharedInformerFactory(client, 0).Core().V1().Nodes(),
		Recorder: &eventLog{}, Registry: metrics.NewKubeRegistry(),
	}
	if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "no pools") {
		t.Errorf("New without pools: %v", err)
	}
	cfg.Pools = dualStack(4)
	if _, err := New(cfg); err != nil {
		t.Errorf("New: %v", err)
	}
	if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "registering the metrics underlay_ipam_") {
		t.Errorf("New with metrics that are registered already: %v", err)
	}
}
