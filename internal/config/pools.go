package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/underlay-ccm/underlay/ipam"
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

// what returns the name of a pool with a prefix in messages.
func (p Pool) what() string { return fmt.Sprintf("pool %s (%v)", p.Name, p.Prefix) }

func (p Pool) key(name string) string {
	section, _ := cutLast(p.Field)
	return section + "." + name
}

// pools returns the readable pools of the file, or a pool per cluster CIDR, and checks each by
// itself and against all other configured ranges.
func (l *loader) pools() []Pool {
	inFile := l.inFile(poolsKey)
	if l.IPAM.Enabled && !l.isSet(clusterFlag) && !inFile {
		l.complain(clusterFlag, "", "no prefix is given to take podCIDRs from",
			"give one, such as 10.244.0.0/16, or one of each family; or write pools into the file")
	}
	l.oneOfEachFamily(clusterFlag, l.clusterCIDRs, "; further ones belong into pools")
	l.oneOfEachFamily(serviceFlag, l.IPAM.ServiceRanges, "")
	var all []Pool
	names := map[string]string{}
	for i, p := range l.IPAM.Pools {
		l.unique(names, item(poolsKey, i), "name", p.Name, "give each pool a name of its own")
		if l.hasSource(&p) {
			all = append(all, p)
		}
	}
	for _, prefix := range l.clusterCIDRs {
		p := Pool{Name: defaultPoolIPv6, Prefix: prefix, Field: clusterFlag}
		if p.ipv4() {
			p.Name = defaultPoolIPv4
		}
		if !inFile {
			all = append(all, p)
		}
	}
	l.maskFlags(all)
	for i := range all {
		l.pool(&all[i], all[:i])
	}
	if inFile && !l.isWrong(poolsKey) {
		l.likeClusterCIDRs(all)
	}
	l.exclusions(all)
	l.services()
	return all
}

func (l *loader) oneOfEachFamily(flag string, given []netip.Prefix, more string) {
	if len(given) == 2 && given[0].Addr().Is4() == given[1].Addr().Is4() {
		l.complain(flag, given[1].String(),
			fmt.Sprintf("is of the same address family as %v", given[0]),
			"give one prefix, or one IPv4 and one IPv6 prefix"+more)
	}
}

// hasSource reports whether the source of the pool's prefixes is given and valid.
func (l *loader) hasSource(p *Pool) bool {
	cidr, source := p.Field, p.key("source")
	switch {
	case p.Own && l.isSet(cidr):
		l.complain(source, sourceNode, "excludes "+cidr, "give one of the two")
		return false
	case p.Own:
		p.Field = source
	case !l.isSet(cidr) && !l.isWrong(source):
		l.complain(cidr, "", "the key is missing", "give a prefix, such as 10.245.0.0/16, "+
			"or source: node for IPv6 from each server's own /64")
	}
	return p.Own || p.Prefix.IsValid()
}

// maskFlags makes --node-cidr-mask-size that of the only family, and allows the combinations that
// upstream allows.
func (l *loader) maskFlags(all []Pool) {
	four := slices.ContainsFunc(all, Pool.ipv4)
	six := slices.ContainsFunc(all, func(p Pool) bool { return !p.Own && !p.ipv4() })
	switch {
	case !l.isSet(maskFlag):
	case l.isSet(maskFlagIPv4) || l.isSet(maskFlagIPv6):
		l.complain(maskFlag, itoa(l.nodeMask), "excludes "+maskFlagIPv4+" and "+maskFlagIPv6,
			"give only one of them")
	case four && six:
		l.complain(maskFlag, itoa(l.nodeMask), "does not name its address family",
			"use "+maskFlagIPv4+" and "+maskFlagIPv6)
	case four:
		l.nodeMask4, l.origins[maskFlagIPv4] = l.nodeMask, maskFlag
	case six:
		l.nodeMask6, l.origins[maskFlagIPv6] = l.nodeMask, maskFlag
	}
	unused := func(flag string, used bool) {
		if l.isSet(flag) && !used && !l.isWrong(poolsKey) && !l.isWrong(clusterFlag) {
			l.warn(flag, "has no effect: no pool has a cidr of its family")
		}
	}
	unused(maskFlag, four || six)
	unused(maskFlagIPv4, four)
	unused(maskFlagIPv6, six)
}

// pool sets a pool's node mask, and checks it against the pools before it and all other ranges.
func (l *loader) pool(p *Pool, before []Pool) {
	known := p.NodeMask > 0 || !l.onNode // the flags of masks are the controller manager's alone
	mask := l.giveMask(p)
	if p.Own {
		l.hasLength(*p, mask, shortestOwnMask, longestNodeMask(false))
		if l.Provider == Metal {
			l.complain(p.Field, sourceNode,
				"takes a provider that knows each server's own prefix, and metal does not",
				"give a cidr instead, such as fd00:10:244::/56")
		}
		return
	}
	wrong := func(problem, remedy string) { l.complain(p.Field, p.Prefix.String(), problem, remedy) }
	for _, other := range before {
		if !other.Own && other.Prefix.Overlaps(p.Prefix) && p.Field != clusterFlag {
			wrong("overlaps the "+other.what(), "choose prefixes that lie apart; "+
				"for another node mask add a pool elsewhere and let the old one drain")
		}
	}
	for _, service := range l.IPAM.ServiceRanges {
		if p.Prefix.Overlaps(service) {
			wrong(fmt.Sprintf("overlaps the service range %v of %s", service, serviceFlag),
				"choose ranges that lie apart from each other")
		}
	}
	gateway := netip.PrefixFrom(cloudGateway, cloudGateway.BitLen())
	if l.Provider != Metal && contains(p.Prefix, gateway) && !within(gateway, l.IPAM.Exclude) {
		wrong(fmt.Sprintf("holds %v, every server's gateway in this cloud", cloudGateway),
			"choose another prefix, or put 172.31.1.1/32 into exclude")
	}
	l.inVSwitch(*p)
	if known && l.fits(*p, mask) && !l.hasRoom(*p) {
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

// hasRoom reports whether the exclusions leave a node prefix of the pool.
func (l *loader) hasRoom(p Pool) bool {
	config := ipam.PoolConfig{Name: defaultPoolIPv4, Prefix: p.Prefix, NodeMask: p.NodeMask}
	_, err := ipam.NewLedger([]ipam.PoolConfig{config}, l.IPAM.Exclude)
	return err == nil
}

// giveMask sets the pool's node mask from its own key, its family's flag or the default, and
// returns the setting that it is from.
func (l *loader) giveMask(p *Pool) string {
	key, flag, bits := p.key("nodeMask"), maskFlagIPv6, l.nodeMask6
	if p.ipv4() {
		flag, bits = maskFlagIPv4, l.nodeMask4
	}
	switch {
	case p.NodeMask > 0 || l.isWrong(key):
		return key
	case p.Own:
		bits = defaultOwnMask
	case l.isSet(flag) || p.Field == clusterFlag:
		key = flag
	}
	p.NodeMask = bits
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
		l.warn(p.Field, "the pool %v holds a single node's podCIDR", p.Prefix)
	}
	return true
}

// hasLength reports whether the pool's node mask is within bounds.
func (l *loader) hasLength(p Pool, mask string, shortest, longest int) bool {
	if p.NodeMask >= shortest && p.NodeMask <= longest {
		return true
	}
	problem := fmt.Sprintf("doesn't fit the pool %v: its podCIDRs would be too many, "+
		"or each too large or too small", p.Prefix)
	if p.Own {
		problem = "is no part of a server's own /64 that leaves out the server's address"
	}
	l.complain(mask, itoa(p.NodeMask), problem,
		fmt.Sprintf("give a length from %d to %d", shortest, longest))
	return false
}

// likeClusterCIDRs checks the pools of the file against --cluster-cidr, which other programs use
// to recognize the addresses of pods.
func (l *loader) likeClusterCIDRs(all []Pool) {
	for _, cluster := range l.clusterCIDRs {
		if !slices.ContainsFunc(all, func(p Pool) bool { return !p.Own && p.Prefix.Overlaps(cluster) }) {
			l.complain(clusterFlag, cluster.String(), "no pool of the file has any of it, "+
				"and podCIDRs that Nodes have from it would count as foreign",
				"add a pool with this cidr, with state: draining if nothing more shall be handed out; "+
					"or take it off the flag")
		}
	}
	for _, p := range all {
		// Pools in the vSwitch's subnet can't lie within the range of the cloud servers' pods.
		if len(l.clusterCIDRs) > 0 && !p.Own && !p.VSwitch && !within(p.Prefix, l.clusterCIDRs) {
			l.warn(p.Field, "the %s lies outside %s: a program with that range, such as kube-proxy "+
				"with detectLocalMode ClusterCIDR, does not take its addresses for pods'; "+
				"without the flag this is not checked", p.what(), clusterFlag)
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
		l.warn(serviceFlag, "is not given, so a podCIDR may be taken from the range of the Services, "+
			"and pods in it could not be reached; give the API server's ranges")
	}
	for _, service := range l.IPAM.ServiceRanges {
		if service.Contains(cloudGateway) && l.Provider != Metal {
			l.warn(serviceFlag, "%v holds %v, every server's gateway: "+
				"a Service with that address would cut nodes off", service, cloudGateway)
		}
	}
}
