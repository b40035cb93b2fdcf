package layer2

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
)

var address6 = netip.MustParseAddr("2001:db8::10")

// A sent frame is parsed with the same content.
func TestFrames(t *testing.T) {
	tag := Tag{0x1122334455667788, 42}
	client6, linkLocal := netip.MustParseAddr("2001:db8::200"), netip.MustParseAddr("fe80::8")
	for name, c := range map[string]struct {
		frame Frame
		to    MAC
		want  Message
	}{
		"ARP probe": {
			Frame{Kind: Probe, Address: address4},
			MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
			Message{Target: address4, ReplyTo: ownMAC},
		},
		"ARP announcement": {
			Frame{Kind: Announce, Address: address4},
			MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
			Message{Claim: address4, Claimant: ownMAC},
		},
		"ARP announcement as a reply": {
			Frame{Kind: Announce, Address: address4, Reply: true},
			MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
			Message{Claim: address4, Claimant: ownMAC},
		},
		"ARP answer": {
			Frame{Kind: Reply, Address: address4, To: asker, Requester: client4},
			asker,
			Message{Claim: address4, Claimant: ownMAC},
		},
		"ARP answer to a probe": {
			Frame{Kind: Reply, Address: address4, To: asker},
			asker,
			Message{Claim: address4, Claimant: ownMAC},
		},
		"ND probe": {
			Frame{Kind: Probe, Address: address6},
			MAC{0x33, 0x33, 0xff, 0, 0, 0x10},
			Message{Target: address6, ReplyTo: ownMAC},
		},
		"ND announcement": {
			Frame{Kind: Announce, Address: address6},
			MAC{0x33, 0x33, 0, 0, 0, 1},
			Message{Claim: address6, Claimant: ownMAC},
		},
		"ND answer": {
			Frame{Kind: Reply, Address: address6, To: asker, Requester: client6},
			asker,
			Message{Claim: address6, Claimant: ownMAC},
		},
		"ND answer to a link-local address": {
			Frame{Kind: Reply, Address: address6, To: asker, Requester: linkLocal},
			asker,
			Message{Claim: address6, Claimant: ownMAC},
		},
		"ND answer to a probe": {
			Frame{Kind: Reply, Address: address6, To: asker},
			MAC{0x33, 0x33, 0, 0, 0, 1},
			Message{Claim: address6, Claimant: ownMAC},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.frame.From, c.frame.Tag = ownMAC, tag
			frame, err := c.frame.Ethernet()
			if err != nil {
				t.Fatal(err)
			}
			if MAC(frame[:6]) != c.to || MAC(frame[6:12]) != ownMAC || len(frame) < 60 {
				t.Errorf("% x", frame)
			}
			c.want.From, c.want.Tag = ownMAC, tag
			if got, ok := Parse(frame); !ok || got != c.want {
				t.Errorf("is read as %+v, %t, want %+v", got, ok, c.want)
			}
		})
	}
}

// solicitation returns the solicitation of a client for address6.
func solicitation(t *testing.T) []byte {
	f := Frame{Kind: Reply, From: asker, To: ownMAC, Address: address6, Requester: netip.MustParseAddr("2001:db8::200")}
	frame, err := f.Ethernet()
	if err != nil {
		t.Fatal(err)
	}
	return frame
}

func TestMalformed(t *testing.T) {
	arpRequest, err := Frame{Kind: Announce, From: asker, Address: address4}.Ethernet()
	if err != nil {
		t.Fatal(err)
	}
	neighbor := solicitation(t)
	for name, c := range map[string]struct {
		frame  []byte
		damage func(b []byte) []byte
	}{
		"nothing":                       {arpRequest, func(b []byte) []byte { return nil }},
		"half a header":                 {arpRequest, func(b []byte) []byte { return b[:13] }},
		"from a group":                  {arpRequest, func(b []byte) []byte { b[6] |= 1; return b }},
		"from nobody":                   {arpRequest, func(b []byte) []byte { clear(b[6:12]); return b }},
		"another protocol":              {arpRequest, func(b []byte) []byte { b[13] = 0; return b }},
		"half of ARP":                   {arpRequest, func(b []byte) []byte { return b[:14+27] }},
		"ARP for another hardware":      {arpRequest, func(b []byte) []byte { b[15] = 6; return b }},
		"ARP for another protocol":      {arpRequest, func(b []byte) []byte { b[16] = 0x86; return b }},
		"ARP with long addresses":       {arpRequest, func(b []byte) []byte { b[18] = 200; return b }},
		"ARP with IPv6 addresses":       {arpRequest, func(b []byte) []byte { b[19] = 16; return append(b, b...) }},
		"ARP of another kind":           {arpRequest, func(b []byte) []byte { b[21] = 3; return b }},
		"ARP from a group":              {arpRequest, func(b []byte) []byte { b[22] |= 1; return b }},
		"half of IPv6":                  {neighbor, func(b []byte) []byte { return b[:14+39] }},
		"IPv6 of version 4":             {neighbor, func(b []byte) []byte { b[14] = 0x45; return b }},
		"routed":                        {neighbor, func(b []byte) []byte { b[21]--; return b }},
		"UDP":                           {neighbor, func(b []byte) []byte { b[20] = 17; return b }},
		"longer than it is":             {neighbor, func(b []byte) []byte { b[19]++; return b }},
		"shorter than it can be":        {neighbor, func(b []byte) []byte { b[19] = 20; return b }},
		"a wrong checksum":              {neighbor, func(b []byte) []byte { b[14+40+2]++; return b }},
		"another code":                  {neighbor, func(b []byte) []byte { b[14+40+1] = 1; return resum(b) }},
		"another type":                  {neighbor, func(b []byte) []byte { b[14+40] = 128; return resum(b) }},
		"a router's":                    {neighbor, func(b []byte) []byte { b[14+40] = 134; return resum(b) }},
		"an option of no length":        {neighbor, func(b []byte) []byte { b[14+40+25] = 0; return resum(b) }},
		"an option beyond the end":      {neighbor, func(b []byte) []byte { b[14+40+25] = 9; return resum(b) }},
		"a group's hardware address":    {neighbor, func(b []byte) []byte { b[14+40+26] |= 1; return resum(b) }},
		"about a group":                 {neighbor, func(b []byte) []byte { b[14+40+8] = 0xff; return resum(b) }},
		"from a group by IPv6":          {neighbor, func(b []byte) []byte { b[14+8] = 0xff; return resum(b) }},
		"solicited, to a group":         {neighbor, func(b []byte) []byte { b[14+24] = 0xff; return resum(b) }},
		"an answer from nobody by IPv6": {neighbor, func(b []byte) []byte { clear(b[14+8 : 14+24]); return resum(b) }},
	} {
		t.Run(name, func(t *testing.T) {
			if m, ok := Parse(c.frame); !ok {
				t.Fatalf("what is damaged is read as %+v", m)
			}
			if m, ok := Parse(c.damage(slices.Clone(c.frame))); ok {
				t.Errorf("is read as %+v", m)
			}
		})
	}
}

// resum sets the checksum of an ICMPv6 message in a frame.
func resum(frame []byte) []byte {
	body := frame[14+40:]
	clear(body[2:4])
	binary.BigEndian.PutUint16(body[2:], checksum(frame[14+8:14+40], body))
	return frame
}

func TestSolicitationOfDuplicates(t *testing.T) {
	probe := func() []byte {
		frame, err := Frame{Kind: Probe, From: asker, Address: address6}.Ethernet()
		if err != nil {
			t.Fatal(err)
		}
		return frame
	}
	if _, ok := Parse(probe()); !ok {
		t.Error("a probe is not read")
	}
	elsewhere := probe()
	elsewhere[14+39]++ // another group
	if m, ok := Parse(resum(elsewhere)); ok {
		t.Errorf("a probe to a foreign group is read as %+v", m)
	}
}

// solicitationHeader returns the part of a frame before the ICMPv6 message.
func solicitationHeader(length uint16) []byte {
	frame, err := Frame{Kind: Announce, From: asker, Address: address6}.Ethernet()
	if err != nil {
		panic(err) // a mistake of the test
	}
	binary.BigEndian.PutUint16(frame[14+4:], length)
	return frame[:14+40]
}

func FuzzParse(f *testing.F) {
	for _, frame := range []Frame{
		{Kind: Probe, From: ownMAC, Address: address4},
		{Kind: Announce, From: ownMAC, Address: address6},
		{Kind: Probe, From: ownMAC, Address: address6},
	} {
		bytes, err := frame.Ethernet()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(bytes)
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		m, ok := Parse(frame)
		if ok &&
			(!m.From.valid() || m.Claim.IsValid() != m.Claimant.valid() ||
				m.Target.IsValid() != m.ReplyTo.valid()) {
			t.Errorf("% x is read as %+v", frame, m)
		}
		if len(frame) >= 14+40+24 { // with a valid header and checksum, more of it is parsed
			neighbor := append(slices.Clone(solicitationHeader(uint16(len(frame)-14-40))), frame[14+40:]...)
			Parse(resum(neighbor))
		}
	})
}

func BenchmarkParse(b *testing.B) {
	frame, err := Frame{Kind: Announce, From: ownMAC, Address: address4}.Ethernet()
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		Parse(frame)
	}
}
