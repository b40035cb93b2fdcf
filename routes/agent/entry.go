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

// Protocol marks the routes that are ours. Numbers above 200 are assigned to no
// routing daemon (iproute2, rt_protos).
const Protocol = 201

// protocolRA marks routes from router advertisements, whoever heard them: the
// kernel or a program (linux/rtnetlink.h, RTPROT_RA).
const protocolRA = 9

// Metrics of our routes: of two routes to one destination the kernel takes the
// one with the smaller number.
const (
	// MetricPeer is the least of routes toward peers, see PeerMetric, and that of an
	// aggregate route.
	MetricPeer uint32 = 201
	// MetricWorst is that of the unreachable routes for our own podCIDRs: whatever
	// leads to a pod, and whatever a CNI plugin adds, comes before them.
	MetricWorst uint32 = math.MaxUint32
)

// peerMetrics is over how many metrics IPv4 routes to peers are spread.
const peerMetrics = 256

// PeerMetric is that of the route to a peer's podCIDR: for IPv4, MetricPeer and the
// last byte of the network's number, such as 204 for 10.244.3.0/24. When Linux adds
// an IPv4 route it looks for one whose next hop it can share, and compares it with
// all that have its protocol, metric and interface, one by one
// (net/ipv4/fib_semantics.c, fib_find_info). With one metric the table of 15,000
// peers takes seconds for that alone. Nothing like it is done for IPv6.
func PeerMetric(dst netip.Prefix) uint32 {
	if !dst.Addr().Is4() {
		return MetricPeer
	}
	addr := dst.Addr().As4()
	return MetricPeer + binary.BigEndian.Uint32(addr[:])>>(32-dst.Bits())%peerMetrics
}

// Kind is what the kernel does with a packet that a route matches.
type Kind uint8

// The kinds of routes.
const (
	Unicast     Kind = iota + 1 // sends it on, to Via or, without one, to a neighbor
	Unreachable                 // refuses it and says so to its sender
	OtherKind                   // anything else, such as several next hops
)

// Entry is one route of the kernel's main table.
type Entry struct {
	Dst netip.Prefix
	// Via is the gateway of a Unicast entry. The zero Addr means that there is none,
	// and that everything in Dst is a neighbor on Link.
	Via netip.Addr
	// Link is the index of the interface, 0 where Kind isn't Unicast.
	Link     int
	Metric   uint32
	Kind     Kind
	Protocol uint8
}

// String is such as "10.244.3.0/24 via 10.0.0.5" or "10.244.1.0/24 unreachable".
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

// Place is what the kernel tells entries apart by: adding to a place that is
// taken fails, and replacing overwrites whoever has it.
type Place struct {
	Dst    netip.Prefix
	Metric uint32
}

// Place is where the entry stands.
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
	// Carrier: there is somebody at the other end, as far as the driver knows.
	Carrier  bool
	Hardware net.HardwareAddr // nil: it has none
	MTU      int
	// Addrs are its addresses with the length of their prefixes.
	Addrs []netip.Prefix
}

func (l Link) has(addr netip.Addr) bool {
	return slices.ContainsFunc(l.Addrs, func(p netip.Prefix) bool { return p.Addr() == addr })
}

// toward builds our route to a peer's podCIDR.
func toward(dst netip.Prefix, via netip.Addr, link int) Entry {
	return Entry{Dst: dst, Via: via, Kind: Unicast, Link: link, Metric: PeerMetric(dst), Protocol: Protocol}
}

// aggregate builds our route to all pods of a pool.
func aggregate(pool netip.Prefix, via netip.Addr, link int) Entry {
	return Entry{Dst: pool, Via: via, Kind: Unicast, Link: link, Metric: MetricPeer, Protocol: Protocol}
}

// refusing builds our unreachable route for dst.
func refusing(dst netip.Prefix) Entry {
	return Entry{Dst: dst, Kind: Unreachable, Metric: MetricWorst, Protocol: Protocol}
}
