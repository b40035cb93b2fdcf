package bgp

import (
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/underlay-ccm/underlay/addresses"
)

// Desired is everything that a node wants to tell, and to whom.
type Desired struct {
	// ASN is the node's autonomous system.
	ASN uint32
	// RouterID tells the speakers of a network apart: an IPv4 address. See [RouterID].
	RouterID netip.Addr
	// RestartTime is how long routers keep what was announced while the speaker is away (RFC 4724),
	// in whole seconds; 0: they keep nothing.
	RestartTime time.Duration
	Peers       []Peer
	// Prefixes are what is announced: addresses as /32 or /128, podCIDRs.
	Prefixes []netip.Prefix
	// NextHops are addresses of the node, for the family that goes over sessions of the other one:
	// the first one of its family counts.
	NextHops []netip.Addr
}

// Host is the prefix of a single address.
func Host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// RouterID is a node's router ID: its first IPv4 address, or, where it has none, one made of its
// name. Two of the latter are the same with a chance of one in four billion, and routers refuse
// the second one only where both are in the same autonomous system (RFC 6286).
func RouterID(node string, nodeAddresses []netip.Addr) netip.Addr {
	for _, a := range nodeAddresses {
		if a.Is4() {
			return a
		}
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(node)) // never fails
	id := [4]byte(h.Sum(nil))
	id[0] |= 1 // never 0.0.0.0
	return netip.AddrFrom4(id)
}

// Path is a prefix with its next hop. An unspecified one stands for the address that a session
// comes from.
type Path struct {
	Prefix  netip.Prefix
	NextHop netip.Addr
}

func (p Path) compare(other Path) int { return p.Prefix.Compare(other.Prefix) }

// nextHop is that of a family's paths; none: no session carries the family.
func (d Desired) nextHop(f addresses.Family) netip.Addr {
	own := func(p Peer) bool { return addresses.FamilyOf(p.Address) == f }
	switch {
	case len(d.Peers) == 0:
		return netip.Addr{}
	case slices.ContainsFunc(d.Peers, own):
		return unspecified(f)
	}
	for _, a := range d.NextHops {
		if addresses.FamilyOf(a) == f {
			return a
		}
	}
	return netip.Addr{}
}

func unspecified(f addresses.Family) netip.Addr {
	if f == addresses.IPv4 {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// Paths are what is announced, by prefix. Prefixes of a family that no session carries are missing.
func (d Desired) Paths() []Path {
	var paths []Path
	for _, p := range d.Prefixes {
		if hop := d.nextHop(addresses.FamilyOf(p.Addr())); hop.IsValid() {
			paths = append(paths, Path{p, hop})
		}
	}
	slices.SortFunc(paths, Path.compare)
	return slices.Compact(paths)
}

// Sorted are the peers by name, and the communities of each in order.
func (d Desired) Sorted() []Peer {
	peers := make([]Peer, len(d.Peers))
	for i, p := range d.Peers {
		peers[i] = p.canonical()
	}
	slices.SortFunc(peers, func(a, b Peer) int { return strings.Compare(a.Name, b.Name) })
	return peers
}
