package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

const (
	clusterFlag  = "--cluster-cidr"
	serviceFlag  = "--service-cluster-ip-range"
	maskFlag     = "--node-cidr-mask-size"
	maskFlagIPv4 = "--node-cidr-mask-size-ipv4"
	maskFlagIPv6 = "--node-cidr-mask-size-ipv6"
)

const (
	poolsKey      = "pools"
	sourceNode    = "node"
	sourceVSwitch = "vswitch"
)

// The pools that --cluster-cidr creates. Stored ledgers contain their names.
const (
	defaultPoolIPv4 = "default-ipv4"
	defaultPoolIPv6 = "default-ipv6"
)

// A provider routes a /64 to a server; pods get a part of it without the server's own address.
const (
	shortestOwnMask = 65
	defaultOwnMask  = 80
)

// widestPool returns the maximum difference in length between a node prefix and its pool. It
// bounds the allocator's index; package ipam has the same limit.
func widestPool(ipv4 bool) int {
	if ipv4 {
		return 16
	}
	return 48
}

// longestNodeMask leaves at least two addresses per node for pods.
func longestNodeMask(ipv4 bool) int {
	if ipv4 {
		return 30
	}
	return 126
}

// cloudGateway is each server's public gateway and metadata route; no network, route or pod may
// have it. https://docs.hetzner.cloud/reference/cloud#networks
var cloudGateway = netip.MustParseAddr("172.31.1.1")

func itoa(n int) string { return strconv.Itoa(n) }

func (p Pool) ipv4() bool { return !p.Own && p.Prefix.Addr().Is4() }

func (p Pool) family() string {
	if p.ipv4() {
		return "IPv4"
	}
	return "IPv6"
}

// what returns the pool's name in messages.
func (p Pool) what() string {
	if p.Own {
		return fmt.Sprintf("pool %s (%s)", p.Name, p.Field)
	}
	return fmt.Sprintf("pool %s (%v)", p.Name, p.Prefix)
}

func (p Pool) key(name string) string {
	section, _ := cutLast(p.Field)
	return section + "." + name
}

// pools returns the readable pools of the file, or a pool per cluster CIDR, and checks each by
// itself and against all other configured ranges.
func (l *loader) pools() []Pool {
	ofFile := l.IPAM.Pools
	inFile := len(ofFile) > 0 || l.isWrongIn(poolsKey)
	if l.IPAM.Enabled && !l.isSet(clusterFlag) && !inFile && !l.unread {
		l.complain(clusterFlag, "", "no prefix is given to take podCIDRs from",
			"give one, such as 10.244.0.0/16, or one of each family; or write pools into the file")
	}
	l.oneOfEachFamily(clusterFlag, l.clusterCIDRs, "; further ones belong into pools")
	l.oneOfEachFamily(serviceFlag, l.IPAM.ServiceRanges, "")
	var all []Pool
	names := map[string]string{}
	for i, p := range ofFile {
		l.unique(names, item(poolsKey, i), "name", p.Name, "give each pool a name of its own")
		if l.readable(item(poolsKey, i), &p) {
			all = append(all, p)
		}
	}
	for _, prefix := range l.clusterCIDRs {
		if !inFile {
			p := Pool{Name: defaultPoolIPv6, Prefix: prefix, Field: clusterFlag}
			if p.ipv4() {
				p.Name = defaultPoolIPv4
			}
			all = append(all, p)
		}
	}
	single := l.maskFlags(all)
	for i := range all {
		l.pool(&all[i], all[:i], single)
	}
	if len(ofFile) > 0 && !l.isWrongIn(poolsKey) && len(l.clusterCIDRs) > 0 {
		l.likeClusterCIDRs(all)
	}
	l.drained(all)
	l.exclusions(all)
	l.services()
	return all
}

func (l *loader) oneOfEachFamily(flag string, given []netip.Prefix, more string) {
	if len(given) == 2 && given[0].Addr().Is4() == given[1].Addr().Is4() {
		l.complain(flag, given[1].String(), fmt.Sprintf("is of the same address family as %v", given[0]),
			"give one prefix, or one IPv4 and one IPv6 prefix"+more)
	}
}

// readable reports whether the source of the pool's prefixes is given and valid.
func (l *loader) readable(section string, p *Pool) bool {
	cidr, source := section+".cidr", section+".source"
	switch {
	case l.isWrong(section), l.isWrong(cidr), l.isWrong(source):
		return false
	case p.Own && l.isSet(cidr):
		l.complain(source, sourceNode, "excludes "+cidr, "give one of the two")
		return false
	case p.Own:
		p.Field = source
	case !l.isSet(cidr):
		l.complain(cidr, "", "the key is missing",
			"give a prefix, such as 10.245.0.0/16, or source: node for IPv6 from each server's own /64")
		return false
	}
	return true
}

// maskFlags allows the combinations that upstream allows, and reports whether pools have one
// family.
func (l *loader) maskFlags(all []Pool) (single bool) {
	var four, six bool
	for _, prefix := range l.clusterCIDRs {
		four, six = four || prefix.Addr().Is4(), six || prefix.Addr().Is6()
	}
	for _, p := range all {
		four, six = four || p.ipv4(), six || !p.Own && !p.ipv4()
	}
	single = four != six
	if l.isWrongIn(poolsKey) || !l.clustersWhole { // an unreadable pool may be of any family
		four, six = true, true
	}
	refuse := func(flag string, value int, problem, remedy string) {
		if l.isSet(flag) && !l.isWrong(flag) {
			l.complain(flag, itoa(value), problem, remedy)
		}
	}
	switch {
	case !four && !six:
		for _, flag := range []string{maskFlag, maskFlagIPv4, maskFlagIPv6} {
			if l.isSet(flag) {
				l.warn(flag, "has no effect without %s or a pool with a cidr", clusterFlag)
			}
		}
	case four && six && !l.isWrong(clusterFlag) && !l.isWrongIn(poolsKey):
		refuse(maskFlag, l.nodeMask, "does not name its address family",
			"use "+maskFlagIPv4+" and "+maskFlagIPv6)
	case l.isSet(maskFlag) && (l.isSet(maskFlagIPv4) || l.isSet(maskFlagIPv6)):
		refuse(maskFlag, l.nodeMask, "excludes "+maskFlagIPv4+" and "+maskFlagIPv6, "give only one of them")
	case !six:
		refuse(maskFlagIPv6, l.nodeMask6, "no pool has an IPv6 prefix", "remove it, or add such a prefix")
	case !four:
		refuse(maskFlagIPv4, l.nodeMask4, "no pool has an IPv4 prefix", "remove it, or add such a prefix")
	}
	return single
}

// pool sets a pool's node mask, and checks it against the pools before it and all other ranges.
func (l *loader) pool(p *Pool, before []Pool, single bool) {
	mask := l.giveMask(p, single)
	if p.Own {
		l.hasLength(*p, mask, shortestOwnMask, longestNodeMask(false))
		if l.Provider == Metal {
			l.complain(p.Field, sourceNode, "takes a provider that knows each server's own prefix, and metal does not",
				"give a cidr instead, such as fd00:10:244::/56")
		}
		return
	}
	wrong := func(problem, remedy string) { l.complain(p.Field, p.Prefix.String(), problem, remedy) }
	for _, other := range before {
		if !other.Own && other.Prefix.Overlaps(p.Prefix) && p.Field != clusterFlag {
			wrong("overlaps the "+other.what(),
				"choose prefixes that lie apart; for another node mask add a pool elsewhere and let the old one drain")
		}
	}
	for _, service := range l.IPAM.ServiceRanges {
		if p.Prefix.Overlaps(service) {
			wrong(fmt.Sprintf("overlaps the service range %v of %s", service, serviceFlag),
				"choose ranges that lie apart from each other")
		}
	}
	excluded := func(e netip.Prefix) bool { return e.Contains(cloudGateway) }
	if p.Prefix.Contains(cloudGateway) && !slices.ContainsFunc(l.IPAM.Exclude, excluded) && l.Provider != Metal {
		wrong(fmt.Sprintf("holds %v, every server's gateway in this cloud", cloudGateway),
			"choose another prefix, or put 172.31.1.1/32 into exclude")
	}
	l.inVSwitch(*p)
	if l.fits(*p, mask) && !roomLeft(p.Prefix, p.NodeMask, l.IPAM.Exclude) {
		var touching []string
		for _, e := range l.IPAM.Exclude {
			if e.Overlaps(p.Prefix) {
				touching = append(touching, e.String())
			}
		}
		l.complain("exclude", strings.Join(touching, ","), "leaves no node prefix of the "+p.what(),
			"exclude less, or choose another prefix for the pool")
	}
}

// giveMask sets the pool's node mask from its own key, its family's flag or the default, and
// returns the setting that it is from.
func (l *loader) giveMask(p *Pool, single bool) string {
	key, flag, bits := p.key("nodeMask"), maskFlagIPv6, l.nodeMask6
	if p.ipv4() {
		flag, bits = maskFlagIPv4, l.nodeMask4
	}
	switch {
	case p.NodeMask > 0 || l.isWrong(key):
		return key
	case p.Own:
		p.NodeMask = defaultOwnMask
		return key
	case l.isSet(maskFlag) && single:
		p.NodeMask = l.nodeMask
		return maskFlag
	}
	p.NodeMask = bits
	if l.isSet(flag) || p.Field == clusterFlag {
		return flag
	}
	return key
}

// fits reports whether node prefixes of this length can be carved from the pool.
func (l *loader) fits(p Pool, mask string) bool {
	shortest := p.Prefix.Bits()
	longest := min(longestNodeMask(p.ipv4()), shortest+widestPool(p.ipv4()))
	if shortest > longest {
		l.complain(p.Field, p.Prefix.String(), "is too small for a node's podCIDR",
			fmt.Sprintf("give a prefix of length %d or shorter", longest))
		return false
	}
	if !l.hasLength(p, mask, shortest, longest) {
		return false
	}
	if p.NodeMask == shortest {
		l.warn(p.Field, "the pool %v holds a single node's podCIDR of the same length, %d", p.Prefix, p.NodeMask)
	}
	return true
}

// hasLength reports whether the pool's node mask is within bounds.
func (l *loader) hasLength(p Pool, mask string, shortest, longest int) bool {
	if l.isWrong(mask) {
		return false
	}
	problem := "is no part of a server's own /64 that leaves out the server's address"
	switch {
	case p.NodeMask >= shortest && p.NodeMask <= longest:
		return true
	case p.Own:
	case p.NodeMask < shortest:
		problem = fmt.Sprintf("a node's podCIDR would be larger than its pool %v", p.Prefix)
	case p.NodeMask > longestNodeMask(p.ipv4()):
		problem = "leaves a node too few addresses"
	default:
		problem = fmt.Sprintf("is more than %d bits longer than its pool %v, "+
			"which makes more podCIDRs than the allocator can manage", widestPool(p.ipv4()), p.Prefix)
	}
	l.complain(mask, itoa(p.NodeMask), problem, fmt.Sprintf("give a length from %d to %d", shortest, longest))
	return false
}

// likeClusterCIDRs checks the pools of the file against --cluster-cidr, which other programs use
// to recognize the addresses of pods.
func (l *loader) likeClusterCIDRs(all []Pool) {
	for _, cluster := range l.clusterCIDRs {
		if !slices.ContainsFunc(all, func(p Pool) bool { return !p.Own && p.Prefix.Overlaps(cluster) }) {
			l.complain(clusterFlag, cluster.String(), "no pool of the file has any of it, and podCIDRs that Nodes have from it would count as foreign",
				"add a pool with this cidr, with state: draining if nothing more shall be handed out; or take it off the flag")
		}
	}
	for _, p := range all {
		// Pools in the vSwitch's subnet can't lie within the range of the cloud servers' pods.
		if !p.Own && !p.VSwitch && l.clustersWhole && !within(p.Prefix, l.clusterCIDRs) {
			l.warn(p.Field, "the %s lies outside %s: a program with that range, such as kube-proxy with detectLocalMode ClusterCIDR, does not take its addresses for pods'; without the flag this is not checked", p.what(), clusterFlag)
		}
	}
	if first := all[0]; first.ipv4() != l.clusterCIDRs[0].Addr().Is4() {
		l.warn(first.Field, "%s comes first in pools and not in %s: podCIDRs of new Nodes have the order of the pools", first.family(), clusterFlag)
	}
}

// drained warns about families without allocation: a Node gets all of its podCIDRs or none.
func (l *loader) drained(all []Pool) {
	for i, p := range all {
		same := func(other Pool) bool { return other.ipv4() == p.ipv4() }
		open := func(other Pool) bool { return same(other) && !other.Draining }
		if !slices.ContainsFunc(all[:i], same) && !slices.ContainsFunc(all, open) {
			l.warn(p.key("state"), "every pool of %s is draining: no Node gets podCIDRs of any family until there is an active one, or none of %[1]s", p.family())
		}
	}
}

func (l *loader) exclusions(all []Pool) {
	for _, excluded := range l.IPAM.Exclude {
		touches := func(p Pool) bool {
			return p.Own && excluded.Addr().Is6() || !p.Own && excluded.Overlaps(p.Prefix)
		}
		if !slices.ContainsFunc(all, touches) {
			l.warn("exclude", "%v lies in no pool and has no effect", excluded)
		}
	}
}

func (l *loader) services() {
	if l.IPAM.Enabled && !l.isSet(serviceFlag) {
		l.warn(serviceFlag, "is not given, so a podCIDR may be taken from the range of the Services, and pods in it could not be reached; give the API server's ranges")
	}
	for _, service := range l.IPAM.ServiceRanges {
		if service.Contains(cloudGateway) && l.Provider != Metal {
			l.warn(serviceFlag, "%v holds %v, every server's gateway: a Service with that address would cut nodes off", service, cloudGateway)
		}
	}
}
