package bgp

import (
	"net/netip"
	"slices"
	"time"

	"github.com/underlay-ccm/underlay/addresses"
)

// DefaultRestartTime is how long routers are asked to keep what a node announced while its speaker
// is replaced: time for a new pod to be pulled and started, and the longest that traffic may go to a
// machine that was switched off in an orderly way without being drained.
const DefaultRestartTime = 60 * time.Second

// Peer is a router, and how to speak with it.
type Peer struct {
	// Name is no other peer's, and neither is Address: there is one session with a router.
	Name    string
	Address netip.Addr
	Port    uint16
	// ASN is the router's autonomous system; the node's own makes an internal session.
	ASN      uint32
	Password Password
	// HoldTime, in whole seconds from 3 on, is how long a silent peer counts as present; the shorter
	// one of both sides applies (RFC 4271).
	HoldTime time.Duration
	// Communities are set on everything that this router is told (RFC 1997): an autonomous system in
	// the upper 16 bits of each.
	Communities []uint32
	// Multihop: an external router that is not on one of the node's own segments, so without BFD.
	Multihop bool
	// BFD: hello packets every BFDInterval beside the session (RFC 5880, RFC 5881); the router is
	// taken for gone after BFDMisses of them.
	BFD bool
}

// Timing of BFD. Routers answer with their own, and the slower one counts.
const (
	BFDInterval = 300 * time.Millisecond
	BFDMisses   = 3
)

// canonical is the peer with its communities sorted.
func (p Peer) canonical() Peer {
	p.Communities = slices.Compact(slices.Sorted(slices.Values(p.Communities)))
	return p
}

// sameSession reports whether the session with one peer may go on with the settings of the other.
// Communities are no setting of a session.
func (p Peer) sameSession(other Peer) bool {
	return p.Address == other.Address && p.Port == other.Port && p.ASN == other.ASN &&
		p.Password.Reveal() == other.Password.Reveal() && p.HoldTime == other.HoldTime &&
		p.Multihop == other.Multihop && p.BFD == other.BFD
}

// PeerState is how far a session is.
type PeerState struct {
	addresses.Router
	Address netip.Addr
	// Carries are the families that both sides have agreed on, while the session stands.
	Carries []addresses.Family
	// BFD is the state of BFD as RFC 5880 names it; empty: there is none with this peer.
	BFD string
	// Reason says why the last session ended, or why there is none; empty: nothing is known.
	Reason string
}
