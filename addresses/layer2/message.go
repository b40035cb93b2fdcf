package layer2

import (
	"encoding/binary"
	"hash/fnv"
	"net/netip"
)

// Message is the content of a frame of either family.
type Message struct {
	// From is the hardware address of the sender.
	From MAC
	// Claim is the address that Claimant claims to have; invalid if there is none.
	Claim    netip.Addr
	Claimant MAC
	// Target is the address to resolve, if valid. Asker is the sender's address; invalid in a probe.
	Target    netip.Addr
	Requester netip.Addr
	// ReplyTo is the destination of the answer.
	ReplyTo MAC
	Tag     Tag
}

// Tag contains the epoch at which the sender holds or wants an address, in bytes that other hosts
// ignore: the padding of ARP, an option of neighbor discovery. The zero Tag means none.
type Tag struct {
	Cluster uint64 // hash of Desired.Cluster
	Epoch   uint64
}

const tagSize = 16

// clusterHash returns the same hash on all nodes of a cluster, or 0 without a cluster.
func clusterHash(cluster string) uint64 {
	if cluster == "" {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(cluster))
	return max(1, h.Sum64())
}

func (t Tag) bytes() []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, tagSize), t.Cluster)
	return binary.BigEndian.AppendUint64(b, t.Epoch)
}

func readTag(b []byte) Tag {
	if len(b) < tagSize {
		return Tag{}
	}
	return Tag{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])}
}

// Kind is the purpose of a sent frame.
type Kind string

const (
	// Probe requests the holder of an address without claiming it.
	Probe Kind = "probe"
	// Announce updates the caches of all neighbors.
	Announce Kind = "announce"
	// Reply replies to a request.
	Reply Kind = "answer"
)

// Frame is a frame to send.
type Frame struct {
	Kind    Kind
	key     wireKey // wire to send it on
	From    MAC     // hardware address of the link
	Address netip.Addr
	// Reply sends an ARP Announce as reply, not request (RFC 5227): some devices need that.
	Reply bool
	// To and Asker are the requester of an Answer. Without Asker the request was a probe.
	To        MAC
	Requester netip.Addr
	Tag       Tag
}

// Ethernet encodes the frame.
func (f Frame) Ethernet() ([]byte, error) {
	if f.Address.Is4() {
		return arpFrame(f)
	}
	return neighborFrame(f)
}

// Parse decodes a received frame. It returns false for malformed frames and for other protocols
// than ARP and neighbor discovery.
func Parse(frame []byte) (Message, bool) {
	if len(frame) < ethernetHeader {
		return Message{}, false
	}
	m := Message{From: MAC(frame[6:12])}
	if !m.From.valid() {
		return Message{}, false
	}
	switch binary.BigEndian.Uint16(frame[12:]) {
	case etherTypeARP:
		return parseARP(m, frame[ethernetHeader:])
	case etherTypeIPv6:
		return parseNeighbor(m, frame[ethernetHeader:])
	}
	return Message{}, false
}

// Ethernet II.
const (
	ethernetHeader = 14
	etherTypeARP   = 0x0806
	etherTypeIPv6  = 0x86dd
)

func ethernet(to, from MAC, etherType uint16) []byte {
	b := make([]byte, 0, 96)
	b = append(append(b, to[:]...), from[:]...)
	return binary.BigEndian.AppendUint16(b, etherType)
}
