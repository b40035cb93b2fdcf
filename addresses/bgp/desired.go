package bgp

import (
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"
	"time"
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

// Canonical returns the same state with sorted peers, communities and prefixes, each once.
func (d Desired) Canonical() Desired {
	d.Peers = slices.SortedFunc(slices.Values(d.Peers), func(a, b Peer) int {
		return strings.Compare(a.Name, b.Name)
	})
	for i, p := range d.Peers {
		d.Peers[i].Communities = slices.Compact(slices.Sorted(slices.Values(p.Communities)))
	}
	d.Prefixes = slices.Compact(slices.SortedFunc(slices.Values(d.Prefixes), netip.Prefix.Compare))
	return d
}
