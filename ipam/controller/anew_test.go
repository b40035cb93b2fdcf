package controller

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/ipam"
)

// The lease and the ledger are deleted together, with a request of the former leader in flight. The
// new lease shows no change of the leader.
func TestALeaseMadeAnewIsNoFirstStart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api := newFakeAPI()
		former := start(t, api, dualStack(4))
		pass(time.Second)
		api.create("a")
		pass(time.Second)
		wantPodCIDRs(t, api, "a", "10.0.0.0/24", "fd00::/64")
		sent := first("PATCH nodes", fault{late: 20 * time.Second}, fault{delay: 25 * time.Second})
		api.inject(func(c call) fault {
			if c.name != "z" {
				return fault{}
			}
			return sent(c)
		})
		api.create("z")
		pass(10 * time.Millisecond)
		former.connection.die()
		former.stop()
		api.deleteLedger()
		api.create("c")
		p := start(t, api, dualStack(4))
		defer p.stop()
		pass(fence - time.Second)
		wantPodCIDRs(t, api, "c")
		pass(time.Minute)
		if got := api.podCIDRs("c"); len(got) != 2 {
			t.Errorf("Node c has %v\n%s", got, api)
		}
		p.events.want(t, 1, ledgerName+" Warning LedgerLost")
		wantSound(t, api)
	})
}

// Of a ledger some ConfigMaps are deleted; the lease may be new, and show no earlier leader.
func TestTheRestOfALostLedgerIsRead(t *testing.T) {
	for name, set := range map[string]setting{"a lease made anew": func(*Config) {}, "a lease that changed hands": notFirst} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				api := newFakeAPI()
				pools := []Pool{pool("v4", "10.0.0.0/19", 24), pool("v6", "fd00::/56", 64)} // 32 of IPv4
				p := start(t, api, pools, quarantine(10*time.Hour))
				for i := range 12 {
					api.create(fmt.Sprint("node-", i))
					pass(time.Second)
				}
				gone := api.podCIDRs("node-7")
				api.delete("node-7")
				pass(10 * time.Minute)
				p.stop()
				for object := 2; object < ipam.Shards; object++ {
					api.deleteObject(ObjectName(object))
				}
				p = start(t, api, pools, quarantine(10*time.Hour), set)
				defer p.stop()
				pass(fence + time.Second)
				for i := range 40 { // more than there are
					api.create(fmt.Sprint("more-", i))
				}
				pass(5 * time.Minute)
				for node := range api.live() {
					if got := api.podCIDRs(node); slices.Contains(got, gone[0]) {
						t.Errorf("Node %s has %v, which is in quarantine for 10 hours", node, got)
					}
				}
				p.events.want(t, 1, ledgerName+" Warning LedgerLost")
			})
		})
	}
}
