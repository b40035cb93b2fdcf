package config

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/underlay-ccm/underlay/addresses"
)

// addresses checks the pools of addresses against each other and everything that their addresses
// may not be, and whether there is what moves them.
func (r *resolver) addresses(d *draft, pods []candidate, robot Robot) Addresses {
	a := d.addresses
	a.Classless = r.classlessAddresses(d)
	pools := make([]addresses.Pool, len(d.addressPools))
	for i, p := range d.addressPools {
		p.Field = p.section + "." + addresses.FieldRanges
		r.movable(d, p, robot)
		for _, one := range p.Ranges {
			r.nobodysAddresses(p, one, d, pods)
		}
		a.Pools = append(a.Pools, p.AddressPool)
		pools[i] = p.Pool
	}
	r.onePerNet(d)
	for _, wrong := range mistakes(addresses.Validate(pools)) {
		section := d.addressPools[wrong.Pool].section
		if field := section + "." + wrong.Field; !r.isWrong(field) && !r.isWrong(section) {
			r.complain(field, wrong.Value, wrong.Problem, wrong.Remedy)
		}
	}
	a.BGP = r.bgp(d)
	return a
}

// mistakes are those that an error is made of.
func mistakes(err error) (all []*addresses.Mistake) {
	var one *addresses.Mistake
	if joined, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // each of them
		for _, part := range joined.Unwrap() {
			if errors.As(part, &one) {
				all = append(all, one)
			}
		}
	}
	return all
}

// classlessAddresses decides whether Services without a class are those of the address pools: where
// there is no cloud whose load balancers could serve them, unless the file says so.
func (r *resolver) classlessAddresses(d *draft) bool {
	if !r.isSet(addressesClassless) {
		return d.provider == Metal && len(d.addressPools) > 0
	}
	if len(d.addressPools) == 0 && !r.isWrongIn(addressPoolsKey) && d.addresses.Classless {
		r.complain(addressesClassless, "true", "there is no pool that Services could get addresses from",
			"add one to "+addressPoolsKey+", or remove this")
	}
	const balancers = "loadBalancers.classless"
	if d.addresses.Classless && d.provider != Metal && d.loadBalancers.Enabled && d.loadBalancers.Classless {
		r.complain(addressesClassless, "true", "load balancers of the cloud serve Services without a class already",
			"set it to false, or "+balancers+" to false")
	}
	return d.addresses.Classless
}

// movable checks that what is to move a pool's addresses is there.
func (r *resolver) movable(d *draft, p *addressPoolDraft, robot Robot) {
	field := p.section + ".mover"
	if r.isWrong(field) {
		return
	}
	cloudless := d.provider == Metal
	switch {
	case p.Mover == FloatingIP && cloudless:
		r.complain(field, string(p.Mover), "takes a cloud, and with provider: metal there is none", "use layer2 or bgp, or set provider: hcloud")
	case p.Mover == Failover && cloudless:
		r.complain(field, string(p.Mover), "takes the Robot web service, which is not asked with provider: metal", "use layer2 or bgp, or set provider: hcloud and give robot.userFile and robot.passwordFile")
	case p.Mover == Failover && !robot.Enabled && !r.onNode && !r.unread:
		r.complain(field, string(p.Mover), "takes the Robot web service, and Robot is not switched on", "give robot.userFile and robot.passwordFile, or use another mover")
	case p.Mover == BGPMover && len(d.bgpPeers) == 0 && !r.isWrongIn(bgpPeersKey):
		r.complain(field, string(p.Mover), "takes routers to announce the addresses to, and there are none", "give them in "+bgpPeersKey+", or use another mover")
	case p.Mover == Layer2 && !cloudless:
		r.warn(field, "layer2 works between machines of one segment, such as dedicated servers in a vSwitch: the cloud's own networks have no such segments, and cloud servers hold none of these addresses")
	}
}

// nobodysAddresses checks that a range has no address that is somebody's already.
func (r *resolver) nobodysAddresses(p *addressPoolDraft, one addresses.Range, d *draft, pods []candidate) {
	wrong := func(problem, remedy string) { r.complain(p.Field, one.String(), problem, remedy) }
	for _, c := range pods {
		if !c.Own && one.Overlaps(addresses.RangeOf(c.Prefix)) {
			wrong("overlaps the "+c.what()+", which is for pods", "choose ranges that lie apart from each other")
		}
	}
	for _, service := range d.serviceRanges {
		if one.Overlaps(addresses.RangeOf(service)) {
			wrong(fmt.Sprintf("overlaps the service range %v of %s", service, serviceFlag), "choose ranges that lie apart from each other")
		}
	}
	taken := func(a netip.Addr, whose string) {
		if one.Contains(a) {
			wrong(fmt.Sprintf("holds %v, which is %s", a, whose), "leave it out of the range")
		}
	}
	for _, m := range d.inventory {
		for _, a := range m.Addresses {
			taken(a, "an address of "+m.section)
		}
	}
	for _, peer := range d.bgpPeers {
		taken(peer.Address, "the address of "+peer.section)
	}
}

// bgp checks the routers against each other.
func (r *resolver) bgp(d *draft) BGP {
	b := d.addresses.BGP
	names, at := map[string]string{}, map[netip.AddrPort]string{}
	for _, p := range d.bgpPeers {
		p.Port = uint16(p.port) //nolint:gosec // its format bounds it
		if twin, twice := names[p.Name]; twice && p.Name != "" {
			r.complain(p.section+".name", p.Name, "is also the name of "+twin, "give each router a name of its own")
		}
		names[p.Name] = p.section
		place := netip.AddrPortFrom(p.Address, p.Port)
		if twin, twice := at[place]; twice && p.Address.IsValid() {
			r.complain(p.section+".address", p.Address.String(), "is also the address of "+twin, "give each router once; its nodeSelector may admit several groups of Nodes, as in rack in (1, 2)")
		}
		at[place] = p.section
		if p.BFD && p.Multihop {
			r.complain(p.section+".bfd", "true", "is for a router on a segment of the nodes, and this one is more hops away", "remove it, or multihop")
		}
		b.Peers = append(b.Peers, p.BGPPeer)
	}
	none := len(b.Peers) == 0 && !r.isWrongIn(bgpPeersKey)
	switch {
	case len(b.Peers) > 0 && !r.isSet(bgpASN):
		r.problems = append(r.problems, &Error{
			Field: bgpASN, Line: r.file.items[bgpPeersKey], Problem: "the key is missing, and the nodes are to speak with routers",
			Remedy: "give the number of the nodes' autonomous system, such as 64512",
		})
	case b.PodCIDRs && none:
		r.complain(bgpPodCIDRs, "true", "there is no router to announce podCIDRs to", "give one in "+bgpPeersKey+", or remove this")
	case r.isSet(bgpASN) && none:
		r.warn(bgpASN, "has no effect without %s", bgpPeersKey)
	case len(b.Peers) > 0 && !b.PodCIDRs && !announced(d.addressPools):
		r.warn(bgpPeersKey, "have no effect: no pool has mover: bgp, and podCIDRs are not announced")
	}
	return b
}

func announced(pools []*addressPoolDraft) bool {
	for _, p := range pools {
		if p.Mover == BGPMover {
			return true
		}
	}
	return false
}
