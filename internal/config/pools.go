package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
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

// widestPool is how many bits longer than its pool a node prefix may be: it
// bounds the allocator's bitmap, which package ipam makes no larger.
const widestPool = 16

// longestNodeMask leaves a node at least two addresses for pods.
func longestNodeMask(ipv4 bool) int {
	if ipv4 {
		return 30
	}
	return 126
}

const (
	clusterFlag  = "--cluster-cidr"
	serviceFlag  = "--service-cluster-ip-range"
	maskFlag     = "--node-cidr-mask-size"
	maskFlagIPv4 = "--node-cidr-mask-size-ipv4"
	maskFlagIPv6 = "--node-cidr-mask-size-ipv6"
)

func itoa(n int) string { return strconv.Itoa(n) }

// pools checks the cluster CIDRs by themselves, with their node masks, and
// against everything that they may not touch.
func (r *resolver) pools(d *draft) []Pool {
	if d.allocateNodeCIDRs && !r.isSet(clusterFlag) {
		r.complain(clusterFlag, "", "no prefix is given to take podCIDRs from",
			"give one, such as 10.244.0.0/16, or one of each family")
	}
	r.oneOfEachFamily(clusterFlag, d.clusterCIDRs)
	r.oneOfEachFamily(serviceFlag, d.serviceRanges)
	r.maskFlags(d)
	var pools []Pool
	for _, prefix := range d.clusterCIDRs {
		if prefix.Addr().Is6() {
			r.warn(clusterFlag, "nothing in this version routes %v: IPv6 between pods on different nodes takes kernel routes of your own on every node", prefix)
		}
		r.apart(prefix, d)
		pool, possible := r.pool(prefix, d)
		if !possible {
			continue
		}
		pools = append(pools, pool)
		if len(d.exclude) > 0 && !roomLeft(prefix, pool.NodeMask, d.exclude) {
			r.complain("exclude", prefix.String(), "no node prefix of this pool is left",
				"exclude less, or give a larger "+clusterFlag)
		}
	}
	for _, excluded := range d.exclude {
		if !slices.ContainsFunc(d.clusterCIDRs, excluded.Overlaps) {
			r.warn("exclude", "%v lies in no pool and has no effect", excluded)
		}
	}
	if d.allocateNodeCIDRs && !r.isSet(serviceFlag) {
		r.warn(serviceFlag, "is not given, so a podCIDR may be taken from the range of the Services, and pods in it could not be reached; give the API server's ranges")
	}
	for _, service := range d.serviceRanges {
		if service.Contains(cloudGateway) {
			r.warn(serviceFlag, "%v holds %v, every server's gateway: a Service with that address would cut nodes off", service, cloudGateway)
		}
	}
	return pools
}

func (r *resolver) oneOfEachFamily(flag string, given []netip.Prefix) {
	if len(given) == 2 && given[0].Addr().Is4() == given[1].Addr().Is4() {
		r.complain(flag, given[1].String(), fmt.Sprintf("is of the same address family as %v", given[0]),
			"give one prefix, or one IPv4 and one IPv6 prefix")
	}
}

// maskFlags allows the combinations that upstream allows.
func (r *resolver) maskFlags(d *draft) {
	refuse := func(flag string, value int, problem, remedy string) {
		if r.isSet(flag) && !r.isWrong(flag) {
			r.complain(flag, itoa(value), problem, remedy)
		}
	}
	switch clusters := r.origin(clusterFlag).items; {
	case len(clusters) == 0:
		for _, flag := range []string{maskFlag, maskFlagIPv4, maskFlagIPv6} {
			if r.isSet(flag) {
				r.warn(flag, "has no effect without %s", clusterFlag)
			}
		}
	case len(clusters) > 1:
		refuse(maskFlag, d.nodeMask, "does not say which of the two address families it is for",
			"use "+maskFlagIPv4+" and "+maskFlagIPv6)
	case r.isSet(maskFlag) && (r.isSet(maskFlagIPv4) || r.isSet(maskFlagIPv6)):
		refuse(maskFlag, d.nodeMask, "excludes "+maskFlagIPv4+" and "+maskFlagIPv6, "give only one of them")
	case len(d.clusterCIDRs) == 1 && d.clusterCIDRs[0].Addr().Is4():
		refuse(maskFlagIPv6, d.nodeMask6, clusterFlag+" has no IPv6 prefix", "remove it, or add such a prefix")
	case len(d.clusterCIDRs) == 1:
		refuse(maskFlagIPv4, d.nodeMask4, clusterFlag+" has no IPv4 prefix", "remove it, or add such a prefix")
	}
}

// pool joins a cluster CIDR with the node mask of its family.
func (r *resolver) pool(prefix netip.Prefix, d *draft) (Pool, bool) {
	flag, mask := maskFlagIPv6, d.nodeMask6
	if prefix.Addr().Is4() {
		flag, mask = maskFlagIPv4, d.nodeMask4
	}
	if len(r.origin(clusterFlag).items) == 1 && r.isSet(maskFlag) {
		flag, mask = maskFlag, d.nodeMask
	}
	roomy := longestNodeMask(prefix.Addr().Is4())
	shortest, longest := prefix.Bits(), min(roomy, prefix.Bits()+widestPool)
	if shortest > longest {
		r.complain(clusterFlag, prefix.String(), "is too small for a node's podCIDR",
			fmt.Sprintf("give a prefix of length %d or shorter", longest))
		return Pool{}, false
	}
	if r.isWrong(flag) {
		return Pool{}, false
	}
	remedy := fmt.Sprintf("give a length from %d to %d", shortest, longest)
	if mask < shortest {
		r.complain(flag, itoa(mask), fmt.Sprintf("a node's podCIDR would be larger than its pool %v", prefix), remedy)
		return Pool{}, false
	}
	if mask > longest {
		problem := "leaves a node too few addresses"
		if mask <= roomy {
			problem = fmt.Sprintf("is more than %d bits longer than its pool %v, which makes more podCIDRs than the allocator can manage", widestPool, prefix)
		}
		r.complain(flag, itoa(mask), problem, remedy)
		return Pool{}, false
	}
	if mask == shortest {
		r.warn(clusterFlag, "the pool %v holds a single node's podCIDR of the same length, %d", prefix, mask)
	}
	return Pool{Prefix: prefix, NodeMask: mask}, true
}

// apart checks a cluster CIDR against the addresses of others.
func (r *resolver) apart(prefix netip.Prefix, d *draft) {
	for _, service := range d.serviceRanges {
		if prefix.Overlaps(service) {
			r.complain(clusterFlag, prefix.String(), fmt.Sprintf("overlaps the service range %v of %s", service, serviceFlag),
				"choose ranges that lie apart from each other")
		}
	}
	excluded := slices.ContainsFunc(d.exclude, func(p netip.Prefix) bool { return p.Contains(cloudGateway) })
	if prefix.Contains(cloudGateway) && !excluded {
		r.complain(clusterFlag, prefix.String(), fmt.Sprintf("holds %v, every server's gateway in this cloud", cloudGateway),
			"choose another prefix, or put 172.31.1.1/32 into exclude")
	}
}

func within(prefix netip.Prefix, ranges []netip.Prefix) bool {
	return slices.ContainsFunc(ranges, func(outer netip.Prefix) bool { return contains(outer, prefix) })
}

func contains(outer, inner netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}

// roomLeft says whether some node prefix in pool touches nothing excluded. It
// halves the pool only where an exclusion reaches into it.
func roomLeft(pool netip.Prefix, nodeMask int, excluded []netip.Prefix) bool {
	if within(pool, excluded) {
		return false
	}
	if !slices.ContainsFunc(excluded, pool.Overlaps) {
		return true
	}
	if pool.Bits() >= nodeMask {
		return false
	}
	lower, upper := halves(pool)
	return roomLeft(lower, nodeMask, excluded) || roomLeft(upper, nodeMask, excluded)
}

func halves(prefix netip.Prefix) (lower, upper netip.Prefix) {
	bits := prefix.Bits()
	address := prefix.Addr().AsSlice()
	address[bits/8] |= 0x80 >> (bits % 8)
	middle, _ := netip.AddrFromSlice(address)
	return netip.PrefixFrom(prefix.Addr(), bits+1), netip.PrefixFrom(middle, bits+1)
}
