package bgp

import (
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/underlay-ccm/underlay/addresses"
)

// Desired has all announcements of a node, and its peers.
type Desired struct {
	// ASN is the node's autonomous system.
	ASN uint32
	// RouterID is an IPv4 address that identifies the node to its peers. See [RouterID].
	RouterID netip.Addr
	// RestartTime is how long routers keep the announcements while the speaker restarts (RFC 4724),
	// in whole seconds; 0: no graceful restart.
	RestartTime time.Duration
	Peers       []Peer
	// Prefixes are announced: addresses as /32 or /128, and podCIDRs.
	Prefixes []netip.Prefix
	// NextHops are addresses of the node. The first of a family is the next hop of that family on
	// sessions of the other family.
	NextHops []netip.Addr
}

// Host returns the prefix of a single address.
func Host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// RouterID returns a node's router ID: its first IPv4 address, or, without IPv4, a hash of its
// name. Two hashes are equal with a chance of one in two billion. Routers then reject the second
// session only within one autonomous system (RFC 6286).
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

// Path is a prefix and its next hop. An unspecified NextHop is the local address of the session.
type Path struct {
	Prefix  netip.Prefix
	NextHop netip.Addr
}

func (p Path) compare(other Path) int { return p.Prefix.Compare(other.Prefix) }

// nextHop returns the next hop of a family, or the zero Addr if no session carries the family.
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

// Paths returns the paths to announce, by prefix, without families that no session carries.
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

// Sorted returns the peers by name, each with sorted communities.
func (d Desired) Sorted() []Peer {
	peers := make([]Peer, len(d.Peers))
	for i, p := range d.Peers {
		peers[i] = p.canonical()
	}
	slices.SortFunc(peers, func(a, b Peer) int { return strings.Compare(a.Name, b.Name) })
	return peers
}
