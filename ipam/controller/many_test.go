package controller

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"
)

// 50,000 Nodes join at once: each takes one PATCH, the ledger takes few writes, and no objects are
// read. A Node costs about as much as with a tenth of the Nodes.
func TestFiftyThousandNodesJoin(t *testing.T) {
	if testing.Short() || slowdown > 1 {
		t.Skip("takes minutes with the race detector; TestManyNodesInShards does the same with fewer Nodes")
	}
	const few, many = 5_000, 50_000
	small, large := joining(t, few), joining(t, many)
	t.Logf("%.0f allocations a Node of %d, %.0f of %d", small, few, large, many)
	if large > 1.5*small {
		t.Errorf("%.0f allocations a Node of %d, and %.0f of %d: want about as many", small, few, large, many)
	}
}

// joining lets Nodes join, and returns the allocations for each, the fake API's included.
func joining(t *testing.T, nodes int) (allocations float64) {
	t.Helper()
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		written := 0
		api.inject(func(c call) fault {
			if c.kind == "PUT configmaps" {
				written += len(c.body)
			}
			return fault{delay: 5 * time.Millisecond}
		})
		p := start(t, api, dualStack(1<<16))
		defer p.stop()
		pass(time.Second)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for i := range nodes {
			// Their addresses lie in the pools, and exclude the prefixes that contain them.
			api.add(fmt.Sprint("node-", i), onMachine(fmt.Sprint("underlay://node-", i)), withAddress(fmt.Sprintf("10.255.%d.%d", i/250, i%250)))
		}
		pass(time.Minute)
		runtime.ReadMemStats(&after)
		allocations = float64(after.Mallocs-before.Mallocs) / float64(nodes)
		holders := map[netip.Prefix]string{}
		for name, node := range api.live() {
			live := LiveNode(node)
			if len(live.PodCIDRs) != 2 {
				t.Fatalf("Node %s has %v", name, live.PodCIDRs)
			}
			for _, prefix := range live.PodCIDRs {
				if other, taken := holders[prefix]; taken {
					t.Fatalf("Nodes %s and %s both have %s", name, other, prefix)
				}
				holders[prefix] = name
			}
		}
		writes := api.ledgerWrites()
		t.Logf("%d Nodes: %d PATCHes, %d writes of the ledger, %d bytes of it a Node", nodes, api.sent(), writes, written/nodes)
		if api.sent() != nodes || api.count("GET nodes") > 0 {
			t.Errorf("%d PATCHes and %d GETs for %d Nodes, want one PATCH each", api.sent(), api.count("GET nodes"), nodes)
		}
		if writes > nodes/50 || written/nodes > 2000 {
			t.Errorf("%d writes and %d bytes of the ledger a Node, want at most one for 50 Nodes, and 2,000", writes, written/nodes)
		}
		wantSound(t, api)
	})
	return allocations
}
