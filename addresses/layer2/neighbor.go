package layer2

import (
	"encoding/binary"
	"net/netip"

	"github.com/mdlayher/ndp"
)

const (
	ipv6Header = 40
	icmpv6     = 58 // next header
	hopLimit   = ndp.HopLimit
	tagOption  = 253 // for experiments, RFC 4727, section 5.3; unknown options are ignored
	tagUnits   = 3   // of 8 bytes
	minSolicit = 24  // bytes of a solicitation or an advertisement without options
)

// neighborFrame encodes a frame as neighbor discovery. The source of an answer is the address
// itself, as from any host that has it.
func neighborFrame(f Frame) ([]byte, error) {
	own := f.From[:]
	value := make([]byte, 8*tagUnits-2) // without type and length
	copy(value, f.Tag.bytes())
	tag := &ndp.RawOption{Type: tagOption, Length: tagUnits, Value: value}
	source, destination := f.Address, netip.IPv6LinkLocalAllNodes()
	var message ndp.Message
	switch f.Kind {
	case Probe:
		// As in duplicate address detection, RFC 4862, section 5.4.2: the answer is multicast.
		group, err := ndp.SolicitedNodeMulticast(f.Address)
		if err != nil {
			return nil, err
		}
		source, destination = netip.IPv6Unspecified(), group
		message = &ndp.NeighborSolicitation{TargetAddress: f.Address, Options: []ndp.Option{tag}}
	case Announce, Reply:
		solicited := f.Kind == Reply && f.Requester.IsValid()
		if solicited {
			destination = f.Requester
		}
		message = &ndp.NeighborAdvertisement{
			TargetAddress: f.Address, Solicited: solicited, Override: true, // RFC 4861, section 7.2.4
			Options: []ndp.Option{&ndp.LinkLayerAddress{Direction: ndp.Target, Addr: own}, tag},
		}
	}
	body, err := ndp.MarshalMessageChecksum(message, source, destination)
	if err != nil {
		return nil, err
	}
	to := f.To
	if destination.IsMulticast() {
		to = groupMAC(destination)
	}
	b := ethernet(to, f.From, etherTypeIPv6)
	b = append(b, 6<<4, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(len(body)))
	b = append(b, icmpv6, hopLimit)
	b = append(append(b, source.AsSlice()...), destination.AsSlice()...)
	return append(b, body...), nil
}

// groupMAC returns the Ethernet address of a multicast group, RFC 2464, section 7.
func groupMAC(group netip.Addr) MAC {
	b := group.As16()
	return MAC{0x33, 0x33, b[12], b[13], b[14], b[15]}
}

// parseNeighbor decodes an IPv6 packet. It accepts the messages of neighbor discovery that are
// valid by RFC 4861, sections 7.1.1 and 7.1.2.
func parseNeighbor(m Message, packet []byte) (Message, bool) {
	if len(packet) < ipv6Header+minSolicit || packet[0]>>4 != 6 {
		return Message{}, false
	}
	if packet[6] != icmpv6 || packet[7] != hopLimit {
		return Message{}, false
	}
	length := int(binary.BigEndian.Uint16(packet[4:]))
	if length < minSolicit || length > len(packet)-ipv6Header {
		return Message{}, false
	}
	body := packet[ipv6Header : ipv6Header+length]
	source := netip.AddrFrom16([16]byte(packet[8:]))
	destination := netip.AddrFrom16([16]byte(packet[24:]))
	if source.IsMulticast() || body[1] != 0 || checksum(packet[8:ipv6Header], body) != 0 {
		return Message{}, false
	}
	parsed, err := ndp.ParseMessage(body)
	if err != nil {
		return Message{}, false
	}
	switch message := parsed.(type) {
	case *ndp.NeighborSolicitation:
		return solicited(m, message, source, destination)
	case *ndp.NeighborAdvertisement:
		return advertised(m, message, source, destination)
	}
	return Message{}, false
}

func solicited(
	m Message, s *ndp.NeighborSolicitation, source, destination netip.Addr,
) (Message, bool) {
	options, ok := optionsOf(s.Options, ndp.Source)
	if !ok || s.TargetAddress.IsMulticast() {
		return Message{}, false
	}
	m.Target, m.ReplyTo, m.Tag = s.TargetAddress, m.From, options.tag
	if options.hardware.valid() {
		m.ReplyTo = options.hardware
	}
	if source.IsUnspecified() {
		group, err := ndp.SolicitedNodeMulticast(s.TargetAddress)
		return m, err == nil && destination == group && !options.hardware.valid()
	}
	m.Requester, m.Claim, m.Claimant = source, source, m.ReplyTo
	return m, true
}

func advertised(
	m Message, a *ndp.NeighborAdvertisement, source, destination netip.Addr,
) (Message, bool) {
	options, ok := optionsOf(a.Options, ndp.Target)
	unicast := !a.TargetAddress.IsMulticast() && !source.IsUnspecified()
	if !ok || !unicast || a.Solicited && destination.IsMulticast() {
		return Message{}, false
	}
	m.Claim, m.Claimant, m.Tag = a.TargetAddress, m.From, options.tag
	if options.hardware.valid() {
		m.Claimant = options.hardware
	}
	return m, true
}

type neighborOptions struct {
	hardware MAC
	tag      Tag
}

// optionsOf reads the relevant options. It returns false for an invalid hardware address.
func optionsOf(all []ndp.Option, direction ndp.Direction) (found neighborOptions, ok bool) {
	for _, o := range all {
		switch o := o.(type) {
		case *ndp.LinkLayerAddress:
			if o.Direction != direction {
				continue
			}
			if found.hardware = macOf(o.Addr); !found.hardware.valid() {
				return neighborOptions{}, false
			}
		case *ndp.RawOption:
			if o.Type == tagOption && o.Length == tagUnits {
				found.tag = readTag(o.Value)
			}
		}
	}
	return found, true
}

// checksum returns the checksum of an ICMPv6 message, RFC 4443, section 2.3, or zero if the message
// contains its checksum. addresses are source and destination as in the header.
func checksum(addresses, body []byte) uint16 {
	sum := uint32(len(body)) + icmpv6
	for _, part := range [][]byte{addresses, body} {
		for ; len(part) > 1; part = part[2:] {
			sum += uint32(binary.BigEndian.Uint16(part))
		}
		if len(part) == 1 {
			sum += uint32(part[0]) << 8
		}
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
