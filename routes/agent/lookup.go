package agent

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
)

// lookup answers where the kernel would send a packet by the routes of others:
// what we add must not decide whether it may be added.
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
	l.lengths = slices.SortedFunc(maps.Keys(l.byLength), func(a, b int) int { return cmp.Compare(b, a) })
	return l
}

// route is the longest route that holds the address and is at most so long.
func (l lookup) route(addr netip.Addr, atMost int) (Entry, bool) {
	for _, bits := range l.lengths {
		if bits > atMost {
			continue
		}
		p, err := addr.Prefix(bits)
		if err != nil { // a length that only IPv6 has
			continue
		}
		if e, ok := l.byLength[bits][p]; ok {
			return e, true
		}
	}
	return Entry{}, false
}
