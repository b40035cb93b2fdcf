package addresses

import "net/netip"

// Witness updates Held of each entry from its holder's report: the holder holds the address, or
// refused it because an external host has it. Epochs don't show this: the holder of the first epoch
// may have refused the address, and a released address may since be used by an external host. Holds
// that are Young are ignored, as they may still be released to an external host that answers late.
func (l Ledger) Witness(reports map[string]Report) Ledger {
	held := make(map[netip.Addr]bool)
	for node, r := range reports {
		for _, p := range r.Refused {
			if p.Reason == InUse && l.entries[p.Address].Holder == node {
				held[p.Address] = false
			}
		}
		for _, h := range r.Held { // an address that is also refused was defended
			if e := l.entries[h.Address]; e.Holder == node && e.Epoch == h.Epoch && !h.Young {
				held[h.Address] = true
			}
		}
	}
	witnessed := l.clone()
	for address, is := range held {
		if e := l.entries[address]; e.Held != is {
			e.Held = is
			witnessed.put(e)
		}
	}
	return witnessed
}
