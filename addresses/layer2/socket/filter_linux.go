package socket

import "golang.org/x/net/bpf"

// Offsets in an Ethernet frame, in bytes.
const (
	arpOperationAt = 14 + 6
	nextHeaderAt   = 14 + 6
	hopLimitAt     = 14 + 7
	icmpTypeAt     = 14 + 40
)

const all = 1 << 16

// otherHost (PACKET_OTHERHOST) is the type of frames for the hardware address of another host or
// with a VLAN tag for which this host has no interface.
const otherHost = 3

func arpFilter() []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: otherHost, SkipTrue: 4},
		bpf.LoadAbsolute{Off: arpOperationAt, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 1, SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 2, SkipTrue: 1},
		bpf.RetConstant{Val: all},
		bpf.RetConstant{Val: 0},
	}
}

// neighborFilter passes solicitations and advertisements that no router has forwarded. It drops
// messages with extension headers: RFC 6980 forbids fragments, and no other header is needed.
func neighborFilter() []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: otherHost, SkipTrue: 8},
		bpf.LoadAbsolute{Off: nextHeaderAt, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 58, SkipTrue: 6},
		bpf.LoadAbsolute{Off: hopLimitAt, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 255, SkipTrue: 4},
		bpf.LoadAbsolute{Off: icmpTypeAt, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 135, SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 136, SkipTrue: 1},
		bpf.RetConstant{Val: all},
		bpf.RetConstant{Val: 0},
	}
}
