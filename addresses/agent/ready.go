package agent

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/underlay-ccm/underlay/addresses"
)

// orphans are the addresses of Services in the first ledger that are in none of this run's pools: a
// pool was removed from the configuration while in use.
type orphans struct {
	found     bool // learn has run
	addresses []netip.Addr
}

// learn uses the first ledger only. A pool that is added later requires the next run, and is no
// reason to reject this configuration.
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

// Ready returns an error while Services use addresses that are in no pool of this run's
// configuration. An unready node stops the configuration's rollout, so the remaining nodes keep the
// addresses.
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
