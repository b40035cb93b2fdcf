package agent

import (
	"cmp"
	"net/netip"
	"slices"
)

// lookup finds the kernel's route for an address, without our routes: they must not decide
// whether a route may be added.
type lookup struct {
	routes map[netip.Prefix]Entry
	// lengths of IPv4 and IPv6 prefixes together, the longest first.
	lengths []int
}

func newLookup(have []Entry) lookup {
	l := lookup{routes: map[netip.Prefix]Entry{}}
	for _, e := range have {
		if old, taken := l.routes[e.Dst]; !e.Ours() && (!taken || e.Metric < old.Metric) {
			l.routes[e.Dst] = e
			l.lengths = append(l.lengths, e.Dst.Bits())
		}
	}
	slices.SortFunc(l.lengths, func(a, b int) int { return cmp.Compare(b, a) })
	l.lengths = slices.Compact(l.lengths)
	return l
}

// route returns the longest route that contains the address and is at most that long.
func (l lookup) route(addr netip.Addr, atMost int) (Entry, bool) {
	for _, bits := range l.lengths {
		p, err := addr.Prefix(bits)
		if bits > atMost || err != nil { // a length of IPv6 only
			continue
		}
		if e, ok := l.routes[p]; ok {
			return e, true
		}
	}
	return Entry{}, false
}
