package addresses

import "net/netip"

// Witness writes down what the holders of addresses say: that they hold them, or that a stranger
// does. Epochs don't tell that: the holder by the first one may have refused the address, and one
// that a Service gave back may be a stranger's by now. One that is young may be given back in a moment,
// and taken again, as long as a stranger answers late.
func (l Ledger) Witness(reports map[string]Report) Ledger {
	held := make(map[netip.Addr]bool)
	for node, r := range reports {
		for _, p := range r.Refused {
			if p.Reason == InUse && l.entries[p.Address].Holder == node {
				held[p.Address] = false
			}
		}
		for _, h := range r.Held { // what is refused too was defended
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
