package agent

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/underlay-ccm/underlay/addresses"
)

// orphans are addresses that Services had when this run read the ledger first, and that none of its
// pools has: somebody has taken a pool out of the configuration while it was in use.
type orphans struct {
	found     bool // the ledger was read
	addresses []netip.Addr
}

// learn looks once. A pool that comes later is one that this run's configuration can't have yet:
// that is for the next run, and no reason against this one.
func (o *orphans) learn(l addresses.Ledger, movers []NamedMover) {
	if o.found {
		return
	}
	o.found = true
	for _, e := range l.Entries() {
		has := func(m NamedMover) bool { return m.has(e.Address) }
		if len(e.Shares) > 0 && !slices.ContainsFunc(movers, has) {
			o.addresses = append(o.addresses, e.Address)
		}
	}
}

// Ready returns an error while Services have addresses of pools that this run's configuration has no
// more. A node that is not ready ends the rollout of that configuration, so that others go on with
// the one before and hold them.
func (a *Agent) Ready() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, address := range a.orphans.addresses {
		if e, known := a.known.Ledger.Entry(address); known && len(e.Shares) > 0 {
			return fmt.Errorf("addresses.pools: no pool has %s, which the Service %s/%s uses: add it again, "+
				"or give the Service another address first", address, e.Shares[0].Namespace, e.Shares[0].Name)
		}
	}
	return nil
}
