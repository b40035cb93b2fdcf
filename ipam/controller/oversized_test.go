package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The Nodes of a cluster that moves here don't fit into one ConfigMap. One Event reports it, with
// the remedy. Their podCIDRs are respected, and the route controller gets the Nodes that were
// deleted. The ledger is created when enough of them are deleted.
func TestATakeoverOfMoreNodesThanFit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		for i := range 6 { // few Nodes with large entries
			api.add(fmt.Sprint("old-", i), onMachine(strings.Repeat("x", storeLimit/5)),
				setPodCIDRs(fmt.Sprintf("10.0.%d.0/24", i), fmt.Sprintf("fd00:0:0:%d::/64", i)))
		}
		p := start(t, api, dualStack(8), notFirst, quarantine(time.Minute))
		defer p.stop()
		pass(fence + time.Second)
		api.create("new")
		pass(10 * time.Minute)
		wantPodCIDRs(t, api, "new")
		wantCondition(t, api, "new", corev1.ConditionFalse, "LedgerFull")
		p.events.want(t, 1, ledgerName+" Warning LedgerLost")
		got := p.events.of(ledgerName + " Warning LedgerFull")
		if len(got) != 1 || !strings.Contains(got[0], "6 Nodes") || !strings.Contains(got[0], "--allocate-node-cidrs=false") {
			t.Errorf("events %q, want one LedgerFull that names figures and remedy", got)
		}
		p.wantMetric(t, "underlay_ipam_ledger_oversized", 1)
		p.wantMetric(t, rangesMetric, 6, "v4", "allocated")
		if n := api.ledgerWrites(); n > 0 {
			t.Errorf("%d writes of a ledger that doesn't fit", n)
		}
		if lists := api.count("LIST nodes"); lists > 2 {
			t.Errorf("the Nodes were listed %d times", lists)
		}
		if _, known := p.Departed(); !known {
			t.Error("which Nodes have left is not known")
		}
		api.delete("old-0")
		pass(2 * time.Second)
		if left, _ := p.Departed(); len(left) != 1 || left[0].Name != "old-0" {
			t.Errorf("Departed() = %v, want old-0", left)
		}
		api.delete("old-1")
		api.delete("old-2")
		pass(2*time.Minute + fence)
		if got := api.podCIDRs("new"); len(got) != 2 {
			t.Errorf("Node new has %v, though there is room\n%q", got, p.events.of(""))
		}
		p.wantMetric(t, "underlay_ipam_ledger_oversized", 0)
		wantSound(t, api)
	})
}

// Other clients add Nodes until the stored ledger can't hold them.
func TestALedgerThatOutgrowsItsConfigMap(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		p := start(t, api, dualStack(8), quarantine(time.Minute))
		defer p.stop()
		pass(time.Second)
		api.create("ours")
		pass(time.Second)
		for i := range 6 {
			api.add(fmt.Sprint("theirs-", i), onMachine(strings.Repeat("x", storeLimit/5)), setPodCIDRs(fmt.Sprintf("192.168.%d.0/24", i)))
		}
		pass(time.Minute)
		before := api.ledgerWrites()
		api.create("new")
		pass(10 * time.Minute)
		if n := api.ledgerWrites() - before; n > 0 {
			t.Errorf("%d writes that can't succeed", n)
		}
		p.events.want(t, 1, ledgerName+" Warning LedgerFull")
		wantPodCIDRs(t, api, "new")
		for i := range 3 {
			api.delete(fmt.Sprint("theirs-", i))
		}
		pass(3 * time.Minute)
		wantPodCIDRs(t, api, "new", "10.0.1.0/24", "fd00:0:0:1::/64")
		wantSound(t, api)
	})
}
