package controller

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/kube"
)

func (p *process) isIdle() bool {
	select {
	case <-p.Idle():
		return true
	default:
		return false
	}
}

// A new leader's other controllers start when the Nodes that waited are served.
func TestIdleWhenTheNodesThatWaitAreServed(t *testing.T) {
	const served = 3 // before
	for name, c := range map[string]struct {
		waiting int
		damaged bool
	}{
		"nothing waits":       {waiting: 0},
		"a Node waits":        {waiting: 1},
		"Nodes wait":          {waiting: 5},
		"one can't be served": {waiting: 6},
		"a damaged ledger":    {waiting: 1, damaged: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				api := newFakeAPI()
				p := start(t, api, dualStack(8))
				pass(time.Second)
				for i := range served {
					api.create(fmt.Sprint("old-", i))
				}
				pass(time.Minute)
				p.stop()
				for i := range c.waiting {
					api.create(fmt.Sprint("new-", i))
				}
				if c.damaged {
					api.editObject(ledgerName, func(data map[string]string) { data["old-0"] = "damaged" })
				}
				api.inject(func(call) fault { return fault{delay: 100 * time.Millisecond} })
				p = start(t, api, dualStack(8))
				defer p.stop()
				for began := time.Now(); !p.isIdle() && time.Since(began) < time.Minute; {
					pass(10 * time.Millisecond)
				}
				if p.isIdle() == c.damaged {
					t.Fatalf("idle: %t", p.isIdle())
				}
				have := 0
				for _, n := range api.live() {
					if kube.HasPodCIDRs(n) {
						have++
					}
				}
				if want := min(served+c.waiting, 8); have != want && !c.damaged {
					t.Errorf("%d Nodes have podCIDRs when it is idle, want %d\n%s", have, want, api)
				}
			})
		})
	}
}

// Of the Nodes that have podCIDRs when a process starts, those with too many addresses get an
// Event, and those that had to wait their condition.
func TestNodesWithPodCIDRsAtTheStart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(8))
		pass(time.Second)
		api.create("plain")
		api.create("addresses")
		api.create("waited")
		pass(time.Minute)
		p.stop()
		api.edit("addresses", withAddress("192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4", "192.0.2.5", "192.0.2.6"))
		api.edit("waited", func(n *corev1.Node) {
			n.Status.Conditions = []corev1.NodeCondition{{
				Type: PodCIDRsAllocated, Status: corev1.ConditionFalse, Reason: reasonPoolExhausted,
			}}
		})
		p = start(t, api, dualStack(8))
		defer p.stop()
		pass(time.Minute)
		p.events.want(t, 1, "addresses Warning TooManyAddresses")
		p.events.want(t, 1, "")
		wantCondition(t, api, "waited", corev1.ConditionTrue, reasonPodCIDRAllocated)
		if n := api.count("PATCH nodes/status"); n != 1 {
			t.Errorf("%d writes of conditions, want 1", n)
		}
	})
}

// A Node with podCIDRs is recorded even if nothing happens to it.
func TestARecordThatLacksANodeIsCompleted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(8))
		pass(time.Second)
		api.create("a")
		api.create("b")
		pass(time.Minute)
		p.stop()
		api.editLedger(func(data map[string]string) { delete(data, "a") })
		p = start(t, api, dualStack(8))
		defer p.stop()
		pass(time.Minute)
		if got := api.holders(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("recorded %v, want a and b\n%s", got, api)
		}
	})
}

// A lost ledger is recreated with all Nodes: the next process may have an older cache.
func TestARecreatedLedgerHasAllNodes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(8))
		pass(time.Second)
		for i := range 6 {
			api.create(fmt.Sprint("node-", i))
		}
		pass(time.Minute)
		p.stop()
		want := api.holders()
		api.deleteLedger()
		p = start(t, api, dualStack(8), notFirst)
		defer p.stop()
		whole := func() bool {
			api.Lock()
			defer api.Unlock()
			return api.ledger.whole()
		}
		for !whole() {
			pass(10 * time.Millisecond)
		}
		if got := api.holders(); !slices.Equal(got, want) || len(got) != 6 {
			t.Errorf("it has %v at first, want %v", got, want)
		}
	})
}
