package addresses

import (
	"fmt"
	"math"
	"math/big"
	"net/netip"
	"slices"
	"strings"
)

// Range contains all addresses from First to Last, which are of the same family.
type Range struct{ First, Last netip.Addr }

// Mistake describes an invalid pool or range.
type Mistake struct {
	// Pool is the pool's index and Field is FieldName or FieldRanges; both unset by ParseRange.
	Pool                   int
	Field                  string
	Value, Problem, Remedy string
}

const (
	FieldName   = "name"
	FieldRanges = "ranges"
)

func (m *Mistake) Error() string { return fmt.Sprintf("%q: %s: %s", m.Value, m.Problem, m.Remedy) }

// ParseRange parses an address, a prefix, or two addresses with a dash between them. A prefix
// includes all of its addresses. The error is a *Mistake.
func ParseRange(text string) (Range, error) {
	const forms = "write 192.0.2.7, 192.0.2.0/28 or 192.0.2.16-192.0.2.31"
	wrong := func(problem, remedy string) (Range, error) {
		return Range{}, &Mistake{Value: text, Problem: problem, Remedy: remedy}
	}
	if prefix, err := netip.ParsePrefix(text); err == nil {
		switch {
		case prefix.Addr().Is4In6():
			return wrong("is an IPv4 prefix in IPv6 notation", forms)
		case prefix != prefix.Masked():
			return wrong("does not begin with the first address of its prefix", "write "+
				prefix.Masked().String())
		}
		return RangeOf(prefix), nil
	}
	from, to, two := strings.Cut(text, "-")
	if !two {
		to = from
	}
	first, err := netip.ParseAddr(strings.TrimSpace(from))
	last, errLast := netip.ParseAddr(strings.TrimSpace(to))
	switch {
	case err != nil || errLast != nil:
		return wrong("is not an address, a prefix, or two addresses", forms)
	case first.Zone() != "" || last.Zone() != "" || first.Is4In6() || last.Is4In6():
		return wrong("has an address with a zone, or an IPv4 address in IPv6 notation", forms)
	case first.Is4() != last.Is4():
		return wrong("has two address families", "write a range for each")
	case last.Less(first):
		return wrong("has its last address before its first", fmt.Sprintf("write %s-%s", last, first))
	}
	return Range{first, last}, nil
}

// RangeOf returns the range of all addresses of a prefix.
func RangeOf(p netip.Prefix) Range { return Range{p.Masked().Addr(), lastOf(p.Masked())} }

// Edges returns the addresses of a segment that no host can have: IPv4's network and broadcast
// addresses, IPv6's subnet-router anycast address (RFC 4291, 2.6.1). Point-to-point links have
// none (RFC 3021, RFC 6164).
func Edges(segment netip.Prefix) []netip.Addr {
	first := segment.Masked().Addr()
	switch {
	case segment.Bits() >= first.BitLen()-1:
		return nil
	case first.Is4():
		return []netip.Addr{first, lastOf(segment)}
	}
	return []netip.Addr{first}
}

func lastOf(p netip.Prefix) netip.Addr {
	bytes := p.Masked().Addr().AsSlice()
	for bit := p.Bits(); bit < p.Addr().BitLen(); bit++ {
		bytes[bit/8] |= 1 << (7 - bit%8)
	}
	last, _ := netip.AddrFromSlice(bytes)
	return last
}

// Contains reports whether the address is in the range.
func (r Range) Contains(a netip.Addr) bool {
	return a.Is4() == r.First.Is4() && !a.Less(r.First) && !r.Last.Less(a)
}

// Overlaps reports whether the ranges have an address in common.
func (r Range) Overlaps(other Range) bool {
	return r.First.Is4() == other.First.Is4() && !r.Last.Less(other.First) && !other.Last.Less(r.First)
}

func (r Range) String() string {
	if r.First == r.Last {
		return r.First.String()
	}
	return r.First.String() + "-" + r.Last.String()
}

// Mover is the mechanism that directs traffic for an address to the node that holds it.
type Mover string

const (
	Layer2     Mover = "layer2"      // the node's agent answers ARP and neighbor solicitations
	BGP        Mover = "bgp"         // the agents announce the address to routers
	FloatingIP Mover = "floating-ip" // the cloud routes the address to a server
	Failover   Mover = "failover"    // Robot routes the address to a dedicated server
)

// Pool is a set of addresses for Services.
type Pool struct {
	Name   string
	Ranges []Range
	// OnRequest restricts the pool to Services that request it or one of its addresses.
	OnRequest bool
}

// Contains reports whether the address is in one of the pool's ranges.
func (p Pool) Contains(a netip.Addr) bool {
	return slices.ContainsFunc(p.Ranges, func(r Range) bool { return r.Contains(a) })
}

// Without returns the pool without some addresses.
func (p Pool) Without(taken []netip.Addr) Pool {
	for _, a := range taken {
		i := slices.IndexFunc(p.Ranges, func(r Range) bool { return r.Contains(a) })
		if i < 0 {
			continue
		}
		var rest []Range
		if r := p.Ranges[i]; r.First != a {
			rest = append(rest, Range{r.First, a.Prev()})
		}
		if r := p.Ranges[i]; r.Last != a {
			rest = append(rest, Range{a.Next(), r.Last})
		}
		p.Ranges = slices.Concat(p.Ranges[:i], rest, p.Ranges[i+1:])
	}
	return p
}

// Size returns the number of addresses of a family in the pool, at most [math.MaxUint64].
func (p Pool) Size(f Family) uint64 {
	all := new(big.Int)
	for _, r := range p.Ranges {
		if FamilyOf(r.First) == f {
			first, last := r.First.As16(), r.Last.As16()
			all.Add(all, new(big.Int).SetBytes(last[:]))
			all.Sub(all, new(big.Int).SetBytes(first[:]))
			all.Add(all, big.NewInt(1))
		}
	}
	if !all.IsUint64() {
		return math.MaxUint64
	}
	return all.Uint64()
}

// Validate returns all mistakes: addresses in two ranges, pools without a range, duplicate names.
func Validate(pools []Pool) (mistakes []*Mistake) {
	type placed struct {
		pool string
		Range
	}
	var all []placed
	names := make(map[string]bool)
	for i, p := range pools {
		wrong := func(field, value, problem, remedy string) {
			mistakes = append(mistakes, &Mistake{
				Pool: i, Field: field, Value: value, Problem: problem, Remedy: remedy,
			})
		}
		if names[p.Name] {
			wrong(FieldName, p.Name, "is the name of another pool too", "give each pool a name of its own")
		}
		names[p.Name] = true
		if len(p.Ranges) == 0 {
			wrong(FieldRanges, "", fmt.Sprintf("pool %s has no range", p.Name),
				"give one, such as 192.0.2.16-192.0.2.31")
		}
		for _, r := range p.Ranges {
			for _, other := range all {
				if other.Overlaps(r) {
					wrong(FieldRanges, r.String(), fmt.Sprintf("overlaps %s of pool %s", other.Range, other.pool),
						"leave each address to one range")
					break // one overlap is enough to fix the range, and there may be thousands
				}
			}
			all = append(all, placed{p.Name, r})
		}
	}
	return mistakes
}
