package agent

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
)

// Protocol marks our routes. No routing daemon has a number above 200 (iproute2, rt_protos).
const Protocol = 201

// protocolRA marks routes of router advertisements, by any program (linux/rtnetlink.h, RTPROT_RA).
const protocolRA = 9

// Metrics of our routes. The kernel prefers the smaller metric.
const (
	// MetricPeer is the smallest of routes to peers, see PeerMetric, and that of aggregate routes.
	MetricPeer uint32 = 201
	// MetricWorst is the metric of the unreachable routes for our own podCIDRs: all routes to
	// pods, and all routes of a CNI plugin, take precedence.
	MetricWorst uint32 = math.MaxUint32
)

// peerMetrics is the number of metrics of IPv4 routes to peers.
const peerMetrics = 256

// PeerMetric returns the metric of the route to a peer's podCIDR: for IPv4, MetricPeer plus the
// last byte of the network's number, such as 204 for 10.244.3.0/24. When Linux adds an IPv4 route,
// it searches for a route with a next hop to share, and compares it with all routes of the same
// protocol, metric and interface, one by one (net/ipv4/fib_semantics.c, fib_find_info). With a
// single metric that alone takes seconds for 15,000 peers. IPv6 has no such search.
func PeerMetric(dst netip.Prefix) uint32 {
	if !dst.Addr().Is4() {
		return MetricPeer
	}
	addr := dst.Addr().As4()
	return MetricPeer + binary.BigEndian.Uint32(addr[:])>>(32-dst.Bits())%peerMetrics
}

// Kind is the kernel's action for packets that match a route.
type Kind uint8

const (
	Unicast     Kind = iota + 1 // forwards to Via or, if that is not set, to a neighbor
	Unreachable                 // drops with an ICMP error to the sender
	OtherKind                   // any other kind, such as several next hops
)

// Entry is one route of the kernel's main table.
type Entry struct {
	Dst netip.Prefix
	// Via is the gateway of a Unicast entry; the zero Addr if all of Dst are neighbors on Link.
	Via netip.Addr
	// Link is the index of the interface, 0 unless Kind is Unicast.
	Link     int
	Metric   uint32
	Kind     Kind
	Protocol uint8
}

// String returns, for example, "10.244.3.0/24 via 10.0.0.5" or "10.244.1.0/24 unreachable".
func (e Entry) String() string {
	switch {
	case e.Kind == Unreachable:
		return e.Dst.String() + " unreachable"
	case e.Via.IsValid():
		return e.Dst.String() + " via " + e.Via.String()
	default:
		return fmt.Sprintf("%s on interface %d", e.Dst, e.Link)
	}
}

// Ours reports whether the entry is marked as ours.
func (e Entry) Ours() bool { return e.Protocol == Protocol }

// Place is the kernel's key for entries. Adding to an occupied place fails; replacing overwrites.
type Place struct {
	Dst    netip.Prefix
	Metric uint32
}

// Place returns the entry's key in the kernel.
func (e Entry) Place() Place { return Place{e.Dst, e.Metric} }

func compareEntries(a, b Entry) int {
	if order := a.Dst.Compare(b.Dst); order != 0 { // nearly always
		return order
	}
	return cmp.Or(
		cmp.Compare(a.Metric, b.Metric), a.Via.Compare(b.Via),
		cmp.Compare(a.Link, b.Link), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Protocol, b.Protocol),
	)
}

// Link is a network interface.
type Link struct {
	Index int
	Name  string
	Up    bool
	// Carrier means that the driver detects a link partner.
	Carrier  bool
	Hardware net.HardwareAddr // nil if it has none
	MTU      int
	// Addrs are its addresses with their prefix lengths.
	Addrs []netip.Prefix
}

func (l Link) has(addr netip.Addr) bool {
	return slices.ContainsFunc(l.Addrs, func(p netip.Prefix) bool { return p.Addr() == addr })
}

func toward(dst netip.Prefix, via netip.Addr, link int) Entry {
	return Entry{
		Dst: dst, Via: via, Kind: Unicast, Link: link, Metric: PeerMetric(dst), Protocol: Protocol,
	}
}

func aggregate(pool netip.Prefix, via netip.Addr, link int) Entry {
	e := toward(pool, via, link)
	e.Metric = MetricPeer
	return e
}

func refusing(dst netip.Prefix) Entry {
	return Entry{Dst: dst, Kind: Unreachable, Metric: MetricWorst, Protocol: Protocol}
}
