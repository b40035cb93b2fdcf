package agent

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
)

// lookup finds the kernel's route for an address, without our routes: they must not decide
// whether a route may be added.
type lookup struct {
	byLength map[int]map[netip.Prefix]Entry
	// lengths of IPv4 and IPv6 prefixes together, the longest first.
	lengths []int
}

func newLookup(have []Entry) lookup {
	l := lookup{byLength: map[int]map[netip.Prefix]Entry{}}
	for _, e := range have {
		if e.Ours() {
			continue
		}
		bits := e.Dst.Bits()
		if l.byLength[bits] == nil {
			l.byLength[bits] = map[netip.Prefix]Entry{}
		}
		if old, taken := l.byLength[bits][e.Dst]; !taken || e.Metric < old.Metric {
			l.byLength[bits][e.Dst] = e
		}
	}
	l.lengths = slices.SortedFunc(maps.Keys(l.byLength), func(a, b int) int {
		return cmp.Compare(b, a)
	})
	return l
}

// route returns the longest route that contains the address and is at most that long.
func (l lookup) route(addr netip.Addr, atMost int) (Entry, bool) {
	for _, bits := range l.lengths {
		if bits > atMost {
			continue
		}
		p, err := addr.Prefix(bits)
		if err != nil { // a length of IPv6 only
			continue
		}
		if e, ok := l.byLength[bits][p]; ok {
			return e, true
		}
	}
	return Entry{}, false
}
