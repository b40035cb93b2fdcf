package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// private is RFC 1918: the only destinations that the cloud's networks route.
var private = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"),
}

// cloudGateway is every server's public gateway and metadata route: no
// network, route or pod may have it.
// https://docs.hetzner.cloud/reference/cloud#networks
var cloudGateway = netip.MustParseAddr("172.31.1.1")

// pools checks the pools by themselves and against everything that they may
// not touch.
func (r *resolver) pools(d *draft) []candidate {
	if d.allocateNodeCIDRs && !r.isSet(clusterFlag) && len(d.pools) == 0 && !r.isWrongIn(poolsKey) && !r.unread {
		r.complain(clusterFlag, "", "no prefix is given to take podCIDRs from",
			"give one, such as 10.244.0.0/16, or one of each family; or write pools into the file")
	}
	r.oneOfEachFamily(clusterFlag, d.clusterCIDRs)
	r.oneOfEachFamily(serviceFlag, d.serviceRanges)
	all := r.candidates(d)
	for i, c := range all {
		if c.Own {
			r.ownMask(c)
			if d.provider == Metal {
				r.complain(c.Field, sourceNode, "takes a provider that knows each server's own prefix, and metal does not",
					"give a cidr instead, such as fd00:10:244::/56")
			}
			continue
		}
		r.apart(c, all[:i], d)
		r.inVSwitch(c, d)
		if r.fits(c) {
			r.room(c, d)
		}
	}
	if len(d.pools) > 0 {
		r.likeClusterCIDRs(all, d)
	}
	r.drained(all)
	r.exclusions(all, d)
	r.services(d)
	return all
}

func (r *resolver) oneOfEachFamily(flag string, given []netip.Prefix) {
	if len(given) == 2 && given[0].Addr().Is4() == given[1].Addr().Is4() {
		remedy := "give one prefix, or one IPv4 and one IPv6 prefix"
		if flag == clusterFlag {
			remedy += "; further ones belong into pools"
		}
		r.complain(flag, given[1].String(), fmt.Sprintf("is of the same address family as %v", given[0]), remedy)
	}
}

// ownMask checks the node mask of a pool that carves servers' own /64s.
func (r *resolver) ownMask(c candidate) {
	longest := longestNodeMask(false)
	if r.isWrong(c.mask) || c.NodeMask >= shortestOwnMask && c.NodeMask <= longest {
		return
	}
	r.complain(c.mask, itoa(c.NodeMask), "is no part of a server's own /64 that leaves out the server's address",
		fmt.Sprintf("give a length from %d to %d", shortestOwnMask, longest))
}

// fits checks that node prefixes of this length can be carved from the pool.
func (r *resolver) fits(c candidate) bool {
	roomy, widest := longestNodeMask(c.ipv4()), widestPool(c.ipv4())
	shortest, longest := c.Prefix.Bits(), min(roomy, c.Prefix.Bits()+widest)
	if shortest > longest {
		r.complain(c.Field, c.Prefix.String(), "is too small for a node's podCIDR",
			fmt.Sprintf("give a prefix of length %d or shorter", longest))
		return false
	}
	if r.isWrong(c.mask) {
		return false
	}
	remedy := fmt.Sprintf("give a length from %d to %d", shortest, longest)
	switch {
	case c.NodeMask < shortest:
		r.complain(c.mask, itoa(c.NodeMask), fmt.Sprintf("a node's podCIDR would be larger than its pool %v", c.Prefix), remedy)
		return false
	case c.NodeMask > roomy:
		r.complain(c.mask, itoa(c.NodeMask), "leaves a node too few addresses", remedy)
		return false
	case c.NodeMask > longest:
		r.complain(c.mask, itoa(c.NodeMask), fmt.Sprintf("is more than %d bits longer than its pool %v, which makes more podCIDRs than the allocator can manage", widest, c.Prefix), remedy)
		return false
	case c.NodeMask == shortest:
		r.warn(c.Field, "the pool %v holds a single node's podCIDR of the same length, %d", c.Prefix, c.NodeMask)
	}
	return true
}

// apart checks a pool against those before it and the addresses of others.
func (r *resolver) apart(c candidate, before []candidate, d *draft) {
	for _, other := range before {
		if !other.Own && other.Prefix.Overlaps(c.Prefix) && c.Field != clusterFlag {
			r.complain(c.Field, c.Prefix.String(), "overlaps the "+other.what(),
				"choose prefixes that lie apart; for another node mask add a pool elsewhere and let the old one drain")
		}
	}
	for _, service := range d.serviceRanges {
		if c.Prefix.Overlaps(service) {
			r.complain(c.Field, c.Prefix.String(), fmt.Sprintf("overlaps the service range %v of %s", service, serviceFlag),
				"choose ranges that lie apart from each other")
		}
	}
	excluded := slices.ContainsFunc(d.exclude, func(p netip.Prefix) bool { return p.Contains(cloudGateway) })
	if c.Prefix.Contains(cloudGateway) && !excluded && d.provider != Metal {
		r.complain(c.Field, c.Prefix.String(), fmt.Sprintf("holds %v, every server's gateway in this cloud", cloudGateway),
			"choose another prefix, or put 172.31.1.1/32 into exclude")
	}
}

// room checks that the exclusions leave something of a pool.
func (r *resolver) room(c candidate, d *draft) {
	if roomLeft(c.Prefix, c.NodeMask, d.exclude) {
		return
	}
	var touching []string
	for _, excluded := range d.exclude {
		if excluded.Overlaps(c.Prefix) {
			touching = append(touching, excluded.String())
		}
	}
	r.complain("exclude", strings.Join(touching, ","), "leaves no node prefix of the "+c.what(),
		"exclude less, or choose another prefix for the pool")
}

// likeClusterCIDRs compares the pools of the file with --cluster-cidr, which is
// what other programs know of the pods' addresses.
func (r *resolver) likeClusterCIDRs(all []candidate, d *draft) {
	if r.isWrongIn(poolsKey) || len(d.clusterCIDRs) == 0 {
		return
	}
	for _, cluster := range d.clusterCIDRs {
		covered := func(c candidate) bool { return !c.Own && c.Prefix.Overlaps(cluster) }
		if !slices.ContainsFunc(all, covered) {
			r.complain(clusterFlag, cluster.String(), "no pool of the file has any of it, and podCIDRs that Nodes have from it would count as foreign",
				"add a pool with this cidr, with state: draining if nothing more shall be handed out; or take it off the flag")
		}
	}
	for _, c := range all {
		// One inside the vSwitch's subnet can't lie within the range of the cloud servers' pods.
		if !c.Own && !c.VSwitch && r.isWhole(clusterFlag, d.clusterCIDRs) && !within(c.Prefix, d.clusterCIDRs) {
			r.warn(c.Field, "the %s lies outside %s: what is told that range, such as kube-proxy with detectLocalMode ClusterCIDR, does not know its addresses for pods'; without the flag this is not checked", c.what(), clusterFlag)
		}
	}
	if first := all[0]; first.ipv4() != d.clusterCIDRs[0].Addr().Is4() {
		r.warn(first.Field, "%s comes first in pools and not in %s: podCIDRs of new Nodes have the order of the pools", first.family(), clusterFlag)
	}
}

// drained warns about families of which nothing is handed out: a Node gets all
// of its podCIDRs or none.
func (r *resolver) drained(all []candidate) {
	for i, c := range all {
		same := func(other candidate) bool { return other.ipv4() == c.ipv4() }
		open := func(other candidate) bool { return same(other) && !other.Draining }
		if !slices.ContainsFunc(all[:i], same) && !slices.ContainsFunc(all, open) {
			section, _, _ := cutLast(c.Field)
			r.warn(section+".state", "every pool of %s is draining: no Node gets podCIDRs of any family until there is an active one, or none of %[1]s", c.family())
		}
	}
}

func (r *resolver) exclusions(all []candidate, d *draft) {
	for _, excluded := range d.exclude {
		touches := func(c candidate) bool {
			return c.Own && excluded.Addr().Is6() || !c.Own && excluded.Overlaps(c.Prefix)
		}
		if !slices.ContainsFunc(all, touches) {
			r.warn("exclude", "%v lies in no pool and has no effect", excluded)
		}
	}
}

func (r *resolver) services(d *draft) {
	if d.allocateNodeCIDRs && !r.isSet(serviceFlag) {
		r.warn(serviceFlag, "is not given, so a podCIDR may be taken from the range of the Services, and pods in it could not be reached; give the API server's ranges")
	}
	for _, service := range d.serviceRanges {
		if service.Contains(cloudGateway) && d.provider != Metal {
			r.warn(serviceFlag, "%v holds %v, every server's gateway: a Service with that address would cut nodes off", service, cloudGateway)
		}
	}
}
