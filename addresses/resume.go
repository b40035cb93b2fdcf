package addresses

import "net/netip"

// believable is the highest accepted epoch: an invalid report must not exhaust the epochs above it.
const believable = 1 << 53

// Resume adapts a lost ledger, rebuilt from the status of Services, to the reports of nodes. New
// epochs are higher than all reported epochs, and an address without a holder is assigned to the
// node that reports it as held, with the highest epoch if there are several.
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
