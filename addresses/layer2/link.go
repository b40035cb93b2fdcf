package layer2

import (
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Link is an interface that can hold addresses: it must be up, have a carrier and an Ethernet
// address. When a link is back, its addresses are probed for and announced again.
type Link struct {
	Name  string
	Index int
	MAC   net.HardwareAddr
	// Prefixes contain the addresses that are neighbors on the interface.
	Prefixes []netip.Prefix
}

func linkNamed(name string, links []Link) (Link, bool) {
	i := slices.IndexFunc(links, func(l Link) bool {
		return l.Name == name && len(l.MAC) == len(MAC{})
	})
	if i < 0 {
		return Link{}, false
	}
	return links[i], true
}

// linkFor returns the link with the longest prefix that contains address, the first by name.
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

// same reports whether both are the same interface, which was not recreated.
func (l Link) same(other Link) bool { return l.Name == other.Name && l.Index == other.Index }

// MAC is an Ethernet address.
type MAC [6]byte

func macOf(hardware net.HardwareAddr) (m MAC) {
	copy(m[:], hardware)
	return m
}

func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// valid reports whether the address can be that of one host: not zero and not a group address.
func (m MAC) valid() bool { return m != MAC{} && m[0]&1 == 0 }
