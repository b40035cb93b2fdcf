package bgp

import (
	"net/netip"
	"slices"
	"time"
)

// DefaultRestartTime is the RestartTime of nodes. It suffices to pull and start a new pod. For at
// most this time, routers may send traffic to a machine that was shut down without a drain.
const DefaultRestartTime = 60 * time.Second

// Peer is a router, and the settings of the session with it.
type Peer struct {
	// Name and Address are unique: there is one session with a router.
	Name    string
	Address netip.Addr
	Port    uint16
	// ASN is the router's autonomous system. The node's own ASN makes the session internal.
	ASN      uint32
	Password Password
	// HoldTime is the time without a message after which a session ends, in whole seconds, at least
	// 3. The smaller value of both sides applies (RFC 4271).
	HoldTime time.Duration
	// Communities are added to each announcement to this router (RFC 1997). The upper 16 bits of
	// each are an autonomous system.
	Communities []uint32
	// Multihop: an external router that is on no segment of the node, so without BFD.
	Multihop bool
	// BFD sends packets every BFDInterval (RFC 5880, RFC 5881). A router is down after BFDMisses of
	// them.
	BFD bool
}

// BFD timers. The slower timers of both sides apply.
const (
	BFDInterval = 300 * time.Millisecond
	BFDMisses   = 3
)

// sameSession reports whether the settings of two peers with sorted communities allow the session
// to be kept.
func (p Peer) sameSession(other Peer) bool {
	return p.Name == other.Name && p.Address == other.Address &&
		p.Port == other.Port && p.ASN == other.ASN &&
		p.Password.Reveal() == other.Password.Reveal() && p.HoldTime == other.HoldTime &&
		p.Multihop == other.Multihop && p.BFD == other.BFD &&
		slices.Equal(p.Communities, other.Communities)
}
