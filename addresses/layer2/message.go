package layer2

import (
	"encoding/binary"
	"hash/fnv"
	"net/netip"
)

// Message is what a frame says, whatever its family.
type Message struct {
	// From is who sent the frame.
	From MAC
	// Claim is the address that somebody says to have, and Claimant who; invalid: none.
	Claim    netip.Addr
	Claimant MAC
	// Ask is the address whose owner is asked for; invalid: none. Asker is who asks: it is invalid
	// where somebody wants the address and asks whether it is free.
	Ask   netip.Addr
	Asker netip.Addr
	// ReplyTo is where the asker wants its answer.
	ReplyTo MAC
	// Tag is the sender's word on the epoch.
	Tag Tag
}

// Tag says by which epoch of the ledger its sender holds an address, or wants to. It travels in
// bytes that others ignore: the padding of ARP, an option of neighbor discovery. Zero: none.
type Tag struct {
	Cluster uint64 // hash of Desired.Cluster
	Epoch   uint64
}

// tagSize is that of a tag in a frame.
const tagSize = 16

// clusterHash is the same number on all machines of a cluster; 0 for no cluster.
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

// readTag reads a tag from where one could be.
func readTag(b []byte) Tag {
	if len(b) < tagSize {
		return Tag{}
	}
	return Tag{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])}
}

// Kind is what a frame of ours is for.
type Kind string

// The kinds.
const (
	// Probe asks whether somebody has the address, without saying that we have it.
	Probe Kind = "probe"
	// Announce tells everybody that the address is here.
	Announce Kind = "announce"
	// Answer tells the one who asked.
	Answer Kind = "answer"
)

// Frame is one to be sent.
type Frame struct {
	Kind    Kind
	key     wireKey // where it goes out
	From    MAC     // the link's
	Address netip.Addr
	// Reply: an Announce by ARP comes as a reply. RFC 5227 announces by requests; there are devices
	// that only learn from replies.
	Reply bool
	// To and Asker are who asked, for an Answer; without Asker it asked whether the address is free.
	To    MAC
	Asker netip.Addr
	Tag   Tag
}

// Ethernet is the frame as it is sent.
func (f Frame) Ethernet() ([]byte, error) {
	if f.Address.Is4() {
		return arpFrame(f)
	}
	return neighborFrame(f)
}

// Parse reads a frame that came in. It returns false for what is not well-formed, and for what is
// neither ARP nor neighbor discovery.
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
