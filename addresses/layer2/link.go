package layer2

import (
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Link is an interface that addresses can be held on: one that is up, has a carrier and has an
// Ethernet address. Another one is to be left out; when it is back, what is held on it is probed for
// and announced again.
type Link struct {
	Name  string
	Index int
	MAC   net.HardwareAddr
	// Prefixes are those whose addresses are neighbors on this interface.
	Prefixes []netip.Prefix
}

// linkOf is the link that an address is wanted on.
func linkOf(w Want, links []Link) (Link, bool) {
	if w.AnswerOn == "" {
		return linkFor(w.Address, links)
	}
	i := slices.IndexFunc(links, func(l Link) bool {
		return l.Name == w.AnswerOn && len(l.MAC) == len(MAC{})
	})
	if i < 0 {
		return Link{}, false
	}
	return links[i], true
}

// linkFor is the link whose segment an address is on: the one with the longest prefix that has it,
// and of several the first by name. Not found: it is on none.
func linkFor(address netip.Addr, links []Link) (Link, bool) {
	var best Link
	bits := -1
	for _, l := range links {
		for _, p := range l.Prefixes {
			longer := p.Bits() > bits || p.Bits() == bits && strings.Compare(l.Name, best.Name) < 0
			if p.Contains(address) && longer && len(l.MAC) == len(MAC{}) {
				best, bits = l, p.Bits()
			}
		}
	}
	return best, bits >= 0
}

// same reports whether both are one interface that was there all the time.
func (l Link) same(other Link) bool { return l.Name == other.Name && l.Index == other.Index }

// clone is a copy that shares nothing.
func (l Link) clone() Link {
	l.MAC, l.Prefixes = slices.Clone(l.MAC), slices.Clone(l.Prefixes)
	return l
}

// MAC is an Ethernet address.
type MAC [6]byte

func macOf(hardware net.HardwareAddr) (m MAC) {
	copy(m[:], hardware)
	return m
}

func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// valid reports whether the address can be that of one machine: it is not zero, and no group's.
func (m MAC) valid() bool { return m != MAC{} && m[0]&1 == 0 }
