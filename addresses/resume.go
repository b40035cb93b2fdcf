package addresses

import "net/netip"

// believable is the highest epoch that can be one: a node that says nonsense must not leave no room
// above it.
const believable = 1 << 53

// Resume fits a ledger that was lost and made anew, from what Services show, to what nodes say:
// epochs go on above all that nodes know, and an address without a holder gets the node that says
// it holds it, of several the one with the highest epoch.
func (l Ledger) Resume(reports map[string]Report) Ledger {
	resumed := l.clone()
	type claimed struct {
		node  string
		epoch uint64
	}
	holders := make(map[netip.Addr]claimed)
	for node, r := range reports {
		for _, h := range r.Held {
			if h.Epoch > believable {
				continue
			}
			resumed.floor = max(resumed.floor, h.Epoch)
			known := holders[h.Address]
			if h.Epoch > known.epoch || h.Epoch == known.epoch && h.Epoch > 0 && node < known.node {
				holders[h.Address] = claimed{node, h.Epoch}
			}
		}
	}
	for _, e := range resumed.Entries() {
		if holder := holders[e.Address]; len(e.Shares) > 0 && e.Holder == "" && holder.node != "" {
			resumed.move(e, holder.node)
		}
	}
	return resumed
}
