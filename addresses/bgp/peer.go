package bgp

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/underlay-ccm/underlay/addresses"
)

// Limits and defaults of sessions.
const (
	// DefaultHoldTime is how long a silent peer is believed to be there; both sides say what they
	// want, and the shorter one counts. Three messages are sent in that time.
	DefaultHoldTime = 9 * time.Second
	// MinHoldTime is the shortest that there is (RFC 4271).
	MinHoldTime = 3 * time.Second
	// MaxHoldTime is what the message has room for: 16 bits of seconds.
	MaxHoldTime = 65535 * time.Second
	// DefaultPort is where routers listen.
	DefaultPort = 179
	// DefaultRestartTime is how long routers are asked to keep what a node announced while its
	// speaker is replaced: time for a new pod to be pulled and started, and the longest that
	// traffic may go to a machine that was switched off in an orderly way without being drained.
	DefaultRestartTime = 60 * time.Second
	// MaxRestartTime is what the capability has room for: 12 bits of seconds (RFC 4724).
	MaxRestartTime = 4095 * time.Second
)

// Peer is a router, and how to speak with it.
type Peer struct {
	Name    string
	Address netip.Addr
	Port    uint16 // 0: DefaultPort
	// ASN is the router's autonomous system; the node's own makes an internal session.
	ASN      uint32
	Password Password
	HoldTime time.Duration // whole seconds; 0: DefaultHoldTime
	// Communities are set on everything that this router is told.
	Communities []Community
	// Multihop: an external router that is not on one of the node's own segments.
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

// Check says what is wrong with a peer: one error for each field, which it names as the
// configuration does.
func (p Peer) Check() (errs []error) {
	report := func(field string, value any, format string, args ...any) {
		errs = append(errs, fmt.Errorf("peer %q: %s: %v: %s", p.Name, field, value, fmt.Sprintf(format, args...)))
	}
	switch a := p.Address; {
	case !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || a.IsLoopback():
		report("address", p.Address, "not the address of a router: write the one that its BGP listens at, such as 192.0.2.1")
	case a.Zone() != "" || a.IsLinkLocalUnicast() || a.Is4In6():
		report("address", p.Address, "a link-local or an embedded address: write a global or a private one of the router")
	}
	if p.ASN == 0 || p.ASN == asTrans {
		report("asn", p.ASN, "not the number of an autonomous system: write the router's own")
	}
	if h := p.HoldTime; h != 0 && (h < MinHoldTime || h > MaxHoldTime || h%time.Second != 0) {
		report("holdTime", h, "write whole seconds from %s on, or leave it out for %s", MinHoldTime, DefaultHoldTime)
	}
	if p.BFD && p.Multihop {
		report("bfd", p.BFD, "BFD is spoken on one segment only: leave it out, or multihop")
	}
	return errs
}

// asTrans stands for large numbers in old messages and is nobody's own (RFC 6793).
const asTrans = 23456

// canonical is the peer with its defaults, and communities sorted.
func (p Peer) canonical() Peer {
	if p.Port == 0 {
		p.Port = DefaultPort
	}
	if p.HoldTime == 0 {
		p.HoldTime = DefaultHoldTime
	}
	p.Communities = slices.Clone(p.Communities)
	slices.SortFunc(p.Communities, Community.compare)
	p.Communities = slices.Compact(p.Communities)
	if len(p.Communities) == 0 {
		p.Communities = nil
	}
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
