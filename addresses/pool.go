package addresses

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Range is all addresses from First to Last, both of one family.
type Range struct{ First, Last netip.Addr }

// ParseRange reads an address, a prefix, or two addresses with a dash between them. A prefix means
// all of its addresses.
func ParseRange(text string) (Range, error) {
	const forms = "write 192.0.2.7, 192.0.2.0/28 or 192.0.2.16-192.0.2.31"
	if prefix, err := netip.ParsePrefix(text); err == nil {
		if prefix != prefix.Masked() || prefix.Addr().Is4In6() {
			return Range{}, fmt.Errorf("range %q: not the first address of a prefix: write %s", text, prefix.Masked())
		}
		return Range{prefix.Addr(), lastOf(prefix)}, nil
	}
	from, to, two := strings.Cut(text, "-")
	if !two {
		to = from
	}
	first, err := netip.ParseAddr(strings.TrimSpace(from))
	last, errLast := netip.ParseAddr(strings.TrimSpace(to))
	switch {
	case err != nil || errLast != nil:
		return Range{}, fmt.Errorf("range %q: not an address, a prefix, or two addresses: %s", text, forms)
	case first.Zone() != "" || last.Zone() != "" || first.Is4In6() || last.Is4In6():
		return Range{}, fmt.Errorf("range %q: an address with a zone, or an IPv4 address in IPv6: %s", text, forms)
	case first.Is4() != last.Is4():
		return Range{}, fmt.Errorf("range %q: two address families: write a range for each", text)
	case last.Less(first):
		return Range{}, fmt.Errorf("range %q: the last address comes before the first: write %s-%s", text, last, first)
	}
	return Range{first, last}, nil
}

// lastOf is the last address of a prefix.
func lastOf(p netip.Prefix) netip.Addr {
	bytes := p.Addr().AsSlice()
	for bit := p.Bits(); bit < p.Addr().BitLen(); bit++ {
		bytes[bit/8] |= 1 << (7 - bit%8)
	}
	last, _ := netip.AddrFromSlice(bytes)
	return last
}

// Contains reports whether the address lies in the range.
func (r Range) Contains(a netip.Addr) bool {
	return a.Is4() == r.First.Is4() && !a.Less(r.First) && !r.Last.Less(a)
}

func (r Range) overlaps(other Range) bool {
	return r.First.Is4() == other.First.Is4() && !r.Last.Less(other.First) && !other.Last.Less(r.First)
}

func (r Range) String() string {
	if r.First == r.Last {
		return r.First.String()
	}
	return r.First.String() + "-" + r.Last.String()
}

// Pool is where Services get addresses from.
type Pool struct {
	Name   string
	Ranges []Range
	// OnRequest: only Services get an address of it that ask for it, or for the pool.
	OnRequest bool
}

// Contains reports whether the address is one of the pool's.
func (p Pool) Contains(a netip.Addr) bool {
	return slices.ContainsFunc(p.Ranges, func(r Range) bool { return r.Contains(a) })
}

// Validate refuses pools that could give one address twice, and such as could give none. The errors
// name pool and range, all at once.
func Validate(pools []Pool) error {
	var errs []error
	type placed struct {
		pool string
		Range
	}
	var all []placed
	names := make(map[string]bool)
	for _, p := range pools {
		if names[p.Name] {
			errs = append(errs, fmt.Errorf("pool %q: another pool has that name too: give each its own", p.Name))
		}
		names[p.Name] = true
		if len(p.Ranges) == 0 {
			errs = append(errs, fmt.Errorf("pool %q has no range: set one, such as 192.0.2.16-192.0.2.31", p.Name))
		}
		for _, r := range p.Ranges {
			for _, other := range all {
				if other.overlaps(r) {
					errs = append(errs, fmt.Errorf("pool %q: range %s overlaps %s of pool %q: leave each address to one range", p.Name, r, other.Range, other.pool))
				}
			}
			all = append(all, placed{p.Name, r})
		}
	}
	return errors.Join(errs...)
}
