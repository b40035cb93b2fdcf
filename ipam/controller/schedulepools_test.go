package controller

import (
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
)

// schedulePools are the configurations of a cluster, one after the other, each just too small for
// the Nodes of a schedule, so that a wrongly freed prefix is soon assigned again. Each process has
// one of them; the controller rejects those that lack a prefix in use.
var schedulePools = [][]Pool{
	dualStack(4),
	{draining(pool("v4", "10.0.0.0/22", 24)), pool("more", "10.0.8.0/23", 25), pool("v6", "fd00::/62", 64)},
	{pool("v4", "10.0.0.0/22", 24), pool("more", "10.0.8.0/23", 25), pool("v6", "fd00::/62", 64), pool("more6", "fd00:0:0:8::/62", 63)},
	{pool("v4", "10.0.0.0/22", 25), pool("v6", "fd00::/62", 64)},
	{pool("v4", "10.0.0.0/22", 24), pool("v6", "fd00::/63", 64)},
	{pool("v4", "10.0.0.0/22", 24)},
	{pool("v4", "10.0.0.0/22", 24), ownPool("own", 80), draining(pool("v6", "fd00::/62", 64))},
	{pool("v4", "10.0.0.0/22", 24), selected(ownPool("own", 80)), pool("v6", "fd00::/62", 64)},
	{selected(pool("v4", "10.0.0.0/22", 24)), pool("more", "10.0.8.0/23", 25), pool("v6", "fd00::/62", 64)},
}

// prefix moves a prefix apart from its neighbors, if they are in several shards: it is 16 times as
// large, as large as a block.
func (s *schedule) prefix(text string) netip.Prefix {
	p := pfx(text)
	if !s.apart {
		return p
	}
	b := p.Addr().AsSlice()
	for i := range len(b) - 1 { // shifts all but the first 8 or 16 bits
		if i > 0 && (i > 1 || p.Addr().Is4()) {
			b[i] = b[i]<<4 | b[i+1]>>4
		}
	}
	b[len(b)-1] <<= 4
	a, _ := netip.AddrFromSlice(b)
	return netip.PrefixFrom(a, p.Bits()-4)
}

func (s *schedule) poolsOf(number int) []Pool {
	pools := slices.Clone(schedulePools[number])
	for i, p := range pools {
		if s.apart && !p.Own {
			pools[i].Prefix, pools[i].NodeMask = s.prefix(p.Prefix.String()), p.NodeMask-4
		}
	}
	return pools
}

func (s *schedule) exclusions() []string {
	var all []string
	for _, text := range scheduleExclusions {
		all = append(all, s.prefix(text).String())
	}
	return all
}

// webRole is the label of every third Node of a schedule.
var webRole = labels.Set{"role": "web"}

// selected returns the pool, restricted to the Nodes with that label.
func selected(p Pool) Pool {
	p.Selector = labels.SelectorFromSet(webRole)
	return p
}

// scheduleExclusions take one node prefix of IPv4.
var scheduleExclusions = []string{"10.0.3.7/32", "fd00:0:0:8::/66"}
