package config

import (
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/addresses/bgp"
)

// Addresses configures the addresses that nodes hold for Services.
type Addresses struct {
	// Classless serves Services without a loadBalancerClass; never together with
	// LoadBalancers.Enabled and LoadBalancers.Classless.
	Classless bool
	// Pools don't overlap each other, pods, Services, the inventory's machines or BGP peers.
	Pools []AddressPool
	BGP   BGP
}

// Enabled reports whether there is a pool for Services.
func (a Addresses) Enabled() bool { return len(a.Pools) > 0 }

// AddressPool is a pool of addresses for Services.
type AddressPool struct {
	addresses.Pool
	// Mover implies BGP.ASN and BGP.Peers if it is BGP, the provider Hcloud if it is FloatingIP, and
	// that Robot is Enabled if it is Failover.
	Mover addresses.Mover
	// Namespaces selects the namespaces whose Services may use the pool; nil selects all.
	Namespaces labels.Selector
	// Field is the setting that holds the ranges, such as addresses.pools[1].ranges.
	Field string
}

// BGP configures the BGP speakers of agents. The zero BGP has no Peers.
type BGP struct {
	// ASN is the nodes' autonomous system number; not 0 with Peers.
	ASN   uint32
	Peers []BGPPeer
	// PodCIDRs makes each node announce its podCIDRs too. Implies Peers.
	PodCIDRs bool
}

// BGPPeer is a router that agents peer with.
type BGPPeer struct {
	bgp.Peer // without the password, which only the nodes read
	// Nodes selects the Nodes that peer with the router; nil selects all.
	Nodes labels.Selector
	// PasswordFile is the absolute path of the TCP MD5 password on the nodes (RFC 2385), or "".
	PasswordFile string
}

const (
	addressesClassless = "addresses.classless"
	addressPoolsKey    = "addresses.pools"
	bgpASN             = "addresses.bgp.asn"
	bgpPodCIDRs        = "addresses.bgp.podCIDRs"
	bgpPeersKey        = "addresses.bgp.peers"
)

// addresses checks the pools against each other, against all other configured addresses, and
// that each pool's mover is available.
func (l *loader) addresses() {
	a := &l.Addresses
	a.Classless = l.classlessAddresses()
	pools := make([]addresses.Pool, len(a.Pools))
	for i, p := range a.Pools {
		pools[i] = p.Pool
		l.movable(item(addressPoolsKey, i)+".mover", p.Mover)
		for _, one := range p.Ranges {
			l.unused(p.Field, one)
		}
	}
	l.onePerNet()
	for _, wrong := range addresses.Validate(pools) {
		field := item(addressPoolsKey, wrong.Pool) + "." + wrong.Field
		l.complain(field, wrong.Value, wrong.Problem, wrong.Remedy)
	}
	l.bgp()
}

// classlessAddresses reports whether address pools serve Services without a class. The default
// is true only without a cloud, because a cloud's load balancers serve them.
func (l *loader) classlessAddresses() bool {
	none, classless := len(l.Addresses.Pools) == 0, l.Addresses.Classless
	b := l.LoadBalancers
	switch {
	case !l.isSet(addressesClassless):
		return l.Provider == Metal && !none
	case classless && none && !l.isWrong(addressPoolsKey):
		l.complain(addressesClassless, "true", "there is no pool that Services could get addresses from",
			"add one to "+addressPoolsKey+", or remove this")
	case classless && l.Provider != Metal && b.Enabled && b.Classless:
		l.complain(addressesClassless, "true",
			"load balancers of the cloud serve Services without a class already",
			"set it to false, or loadBalancers.classless to false")
	}
	return classless
}

// movable checks that the prerequisites of a pool's mover are configured.
func (l *loader) movable(field string, mover addresses.Mover) {
	cloudless := l.Provider == Metal
	wrong := func(problem, remedy string) { l.complain(field, string(mover), problem, remedy) }
	switch {
	case mover == addresses.FloatingIP && cloudless:
		wrong(noCloud, "use layer2 or bgp, or set provider: hcloud")
	case mover == addresses.Failover && !l.Robot.Enabled && (cloudless || !l.onNode):
		wrong("takes the Robot web service, which is not switched on, or not used with provider: metal",
			"give robot.userFile and robot.passwordFile with provider: hcloud, or use another mover")
	case mover == addresses.BGP && len(l.Addresses.BGP.Peers) == 0 && !l.isWrong(bgpPeersKey):
		wrong("takes routers to announce the addresses to, and there are none",
			"give them in "+bgpPeersKey+", or use another mover")
	case mover == addresses.Layer2 && !cloudless:
		l.warn(field, "layer2 works between machines of one segment, such as dedicated servers "+
			"in a vSwitch: the cloud's own networks have no such segments, "+
			"and cloud servers hold none of these addresses")
	}
}

// unused checks that a range contains no address that is already in use.
func (l *loader) unused(field string, one addresses.Range) {
	wrong := func(problem, remedy string) { l.complain(field, one.String(), problem, remedy) }
	const apart = "choose ranges that lie apart from each other"
	for _, p := range l.IPAM.Pools {
		if !p.Own && one.Overlaps(addresses.RangeOf(p.Prefix)) {
			wrong("overlaps the "+p.what()+", which is for pods", apart)
		}
	}
	for _, service := range l.IPAM.ServiceRanges {
		if one.Overlaps(addresses.RangeOf(service)) {
			wrong(fmt.Sprintf("overlaps the service range %v of %s", service, serviceFlag), apart)
		}
	}
	taken := func(a netip.Addr, owner string) {
		if one.Contains(a) {
			wrong(fmt.Sprintf("holds %v, an address of %s", a, owner), "leave it out of the range")
		}
	}
	for i, m := range l.Inventory {
		for _, a := range m.Addresses {
			taken(a, item(inventoryKey, i))
		}
	}
	for i, peer := range l.Addresses.BGP.Peers {
		taken(peer.Address, item(bgpPeersKey, i))
	}
}

// onePerNet checks that pools have at most one address of each /64 of floating IPs and failover
// addresses: the provider routes a /64 as a whole, which can't be on two nodes.
func (l *loader) onePerNet() {
	taken := map[netip.Prefix]bool{}
	for _, p := range l.Addresses.Pools {
		for _, one := range p.Ranges {
			if p.Mover != addresses.FloatingIP && p.Mover != addresses.Failover || one.First.Is4() {
				continue
			}
			net := netip.PrefixFrom(one.First, 64).Masked()
			if one.First != one.Last || taken[net] {
				l.complain(p.Field, one.String(),
					"makes several addresses of one /64, and the provider moves all of it together",
					"give one address of each /64, such as 2001:db8:f::1; "+
						"Services share it by underlay.dev/address-sharing-key")
			}
			taken[net] = true
		}
	}
}

func (l *loader) bgp() {
	b := l.Addresses.BGP
	// There is one session per address, whatever the port.
	names, at := map[string]string{}, map[string]string{}
	for i, p := range b.Peers {
		section := item(bgpPeersKey, i)
		l.unique(names, section, "name", p.Name, "give each router a name of its own")
		if p.Address.IsValid() {
			l.unique(at, section, "address", p.Address.String(), "give each router once; "+
				"its nodeSelector may admit several groups of Nodes, as in rack in (1, 2)")
		}
		if p.BFD && p.Multihop {
			l.complain(section+".bfd", "true",
				"is for a router on a segment of the nodes, and this one is more hops away",
				"remove it, or multihop")
		}
	}
	announced := func(p AddressPool) bool { return p.Mover == addresses.BGP }
	for _, f := range []addresses.Family{addresses.IPv4, addresses.IPv6} {
		pooled := slices.ContainsFunc(l.Addresses.Pools, func(p AddressPool) bool {
			return announced(p) && p.Size(f) > 0
		})
		routed := slices.ContainsFunc(b.Peers, func(p BGPPeer) bool {
			return addresses.FamilyOf(p.Address) == f
		})
		if len(b.Peers) > 0 && pooled && !routed {
			l.warn(bgpPeersKey, "no router has an %s address, so %[1]s addresses of pools with mover: bgp are not announced: list a router once for each family", f)
		}
	}
	none := len(b.Peers) == 0 && !l.isWrong(bgpPeersKey)
	switch {
	case len(b.Peers) > 0 && !l.isSet(bgpASN):
		l.complain(bgpASN, "", "the key is missing, and the nodes are to speak with routers",
			"give the number of the nodes' autonomous system, such as 64512")
	case b.PodCIDRs && none:
		l.complain(bgpPodCIDRs, "true", "there is no router to announce podCIDRs to",
			"give one in "+bgpPeersKey+", or remove this")
	case l.isSet(bgpASN) && none:
		l.warn(bgpASN, "has no effect without %s", bgpPeersKey)
	case len(b.Peers) > 0 && !b.PodCIDRs && !slices.ContainsFunc(l.Addresses.Pools, announced):
		l.warn(bgpPeersKey, "have no effect: no pool has mover: bgp, and podCIDRs are not announced")
	}
}
