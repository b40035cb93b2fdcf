package layer2

import (
	"net/netip"

	"github.com/mdlayher/arp"
)

const (
	arpSize       = 28 // of a packet with Ethernet and IPv4 addresses
	minPayload    = 46 // of an Ethernet frame; ARP leaves 18 bytes of it unused
	arpEthernet   = 1
	arpIPv4       = 0x0800
	hardwareBytes = len(MAC{})
)

// arpFrame encodes a frame as ARP. Probes and announcements are those of RFC 5227, section 1.1.
func arpFrame(f Frame) ([]byte, error) {
	broadcast := MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	p := arp.Packet{
		HardwareType: arpEthernet, HardwareAddrLength: uint8(hardwareBytes),
		ProtocolType: arpIPv4, IPLength: 4,
		Operation: arp.OperationRequest, SenderHardwareAddr: f.From[:], TargetIP: f.Address,
	}
	to, target := broadcast, MAC{}
	switch f.Kind {
	case Probe:
		p.SenderIP = netip.IPv4Unspecified()
	case Announce:
		p.SenderIP = f.Address
		if f.Reply {
			p.Operation, target = arp.OperationReply, broadcast
		}
	case Reply:
		to, target = f.To, f.To
		p.Operation, p.SenderIP, p.TargetIP = arp.OperationReply, f.Address, f.Requester
		if !f.Requester.IsValid() {
			p.TargetIP = netip.IPv4Unspecified()
		}
	}
	p.TargetHardwareAddr = target[:]
	packet, err := p.MarshalBinary()
	if err != nil {
		return nil, err
	}
	b := append(ethernet(to, f.From, etherTypeARP), packet...)
	b = append(b, f.Tag.bytes()...)
	return append(b, make([]byte, minPayload-arpSize-tagSize)...), nil
}

func parseARP(m Message, packet []byte) (Message, bool) {
	var p arp.Packet
	if err := p.UnmarshalBinary(packet); err != nil {
		return Message{}, false
	}
	ethernetIPv4 := p.HardwareType == arpEthernet && p.ProtocolType == arpIPv4 &&
		len(p.SenderHardwareAddr) == hardwareBytes && p.SenderIP.Is4() && p.TargetIP.Is4()
	if !ethernetIPv4 || p.Operation != arp.OperationRequest && p.Operation != arp.OperationReply {
		return Message{}, false
	}
	sender := macOf(p.SenderHardwareAddr)
	if !sender.valid() {
		return Message{}, false
	}
	m.Tag = readTag(packet[arpSize:])
	if !p.SenderIP.IsUnspecified() {
		m.Claim, m.Claimant = p.SenderIP, sender
	}
	// An announcement requests the address that it claims, and needs no answer.
	if p.Operation == arp.OperationRequest && p.TargetIP != p.SenderIP {
		m.Target, m.ReplyTo, m.Requester = p.TargetIP, sender, m.Claim
	}
	return m, true
}
