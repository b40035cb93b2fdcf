package config

import (
	"cmp"
	"fmt"
	"strconv"
)

const (
	clusterFlag  = "--cluster-cidr"
	serviceFlag  = "--service-cluster-ip-range"
	maskFlag     = "--node-cidr-mask-size"
	maskFlagIPv4 = "--node-cidr-mask-size-ipv4"
	maskFlagIPv6 = "--node-cidr-mask-size-ipv6"
)

// What stands in a pool.
const (
	poolsKey      = "pools"
	sourceNode    = "node"
	sourceVSwitch = "vswitch"
	stateActive   = "active"
	stateDraining = "draining"
)

// The pools that --cluster-cidr makes. The names stand in stored ledgers.
const (
	defaultPoolIPv4 = "default-ipv4"
	defaultPoolIPv6 = "default-ipv6"
)

// A provider routes a /64 to a server; pods get a part of it that doesn't hold
// the server's own address.
const (
	shortestOwnMask = 65
	defaultOwnMask  = 80
)

// widestPool is how many bits longer than its pool a node prefix may be: it
// bounds the allocator's index, which package ipam makes no larger.
func widestPool(ipv4 bool) int {
	if ipv4 {
		return 16
	}
	return 48
}

// longestNodeMask leaves a node at least two addresses for pods.
func longestNodeMask(ipv4 bool) int {
	if ipv4 {
		return 30
	}
	return 126
}

func itoa(n int) string { return strconv.Itoa(n) }

// candidate is a pool that has still to be compared with everything else.
type candidate struct {
	Pool
	// mask is the setting that the node mask comes from, for errors.
	mask string
}

func (c candidate) ipv4() bool { return !c.Own && c.Prefix.Addr().Is4() }

// family names the address family.
func (c candidate) family() string {
	if c.ipv4() {
		return "IPv4"
	}
	return "IPv6"
}

// what is how a message names the pool.
func (c candidate) what() string {
	if c.Own {
		return fmt.Sprintf("pool %s (%s)", c.Name, c.Field)
	}
	return fmt.Sprintf("pool %s (%v)", c.Name, c.Prefix)
}

// candidates are the pools of the file, or one for each cluster CIDR, as far as
// they are readable.
func (r *resolver) candidates(d *draft) []candidate {
	var all []candidate
	sections := map[string]string{} // by the pool's name
	for _, p := range d.pools {
		if twin, twice := sections[p.name]; twice && p.name != "" {
			r.complain(p.section+".name", p.name, "is also the name of "+twin, "give each pool a name of its own")
		} else {
			sections[p.name] = p.section
		}
		if c, readable := r.filePool(p); readable {
			all = append(all, c)
		}
	}
	inFile := len(d.pools) > 0 || r.isWrongIn(poolsKey)
	for _, prefix := range d.clusterCIDRs {
		if inFile {
			break
		}
		name := defaultPoolIPv6
		if prefix.Addr().Is4() {
			name = defaultPoolIPv4
		}
		all = append(all, candidate{Pool: Pool{Name: name, Prefix: prefix, Field: clusterFlag}})
	}
	r.nodeMasks(all, d)
	return all
}

// filePool reads one pool of the file. A node mask that the file doesn't give
// stays 0.
func (r *resolver) filePool(p *poolDraft) (candidate, bool) {
	cidr, source, mask := p.section+".cidr", p.section+".source", p.section+".nodeMask"
	if r.isWrong(p.section) {
		return candidate{}, false
	}
	c := candidate{
		Pool: Pool{Name: p.name, Prefix: p.cidr, NodeMask: p.nodeMask, Draining: p.state == stateDraining, Selector: p.selector, Field: cidr},
		mask: mask,
	}
	hasPrefix, hasSource := r.isSet(cidr), r.isSet(source)
	switch {
	case r.isWrong(cidr), r.isWrong(source):
		return candidate{}, false
	case p.source == sourceVSwitch && hasPrefix:
		c.VSwitch = true
	case hasPrefix && hasSource:
		r.complain(source, p.source, "excludes "+cidr, "give one of the two")
		return candidate{}, false
	case p.source == sourceNode:
		c.Own, c.Field = true, source
	case !hasPrefix:
		r.complain(cidr, "", "the key is missing",
			"give a prefix, such as 10.245.0.0/16, or source: node for IPv6 from each server's own /64")
		return candidate{}, false
	}
	return c, true
}

// nodeMasks gives every pool the node mask of its own, of its family's flag, or
// the default, and remembers which it was.
func (r *resolver) nodeMasks(all []candidate, d *draft) {
	var four, six bool
	for _, prefix := range d.clusterCIDRs {
		four, six = four || prefix.Addr().Is4(), six || prefix.Addr().Is6()
	}
	for _, c := range all {
		four, six = four || c.ipv4(), six || !c.Own && !c.ipv4()
	}
	// What can't be read may be of any family.
	known := !r.isWrongIn(poolsKey) && r.isWhole(clusterFlag, d.clusterCIDRs)
	r.maskFlags(d, four || !known, six || !known)
	for i := range all {
		c := &all[i]
		switch {
		case c.NodeMask > 0 || r.isWrong(c.mask):
		case c.Own:
			c.NodeMask = defaultOwnMask
		case r.isSet(maskFlag) && four != six:
			c.mask, c.NodeMask = maskFlag, d.nodeMask
		case c.ipv4():
			c.mask, c.NodeMask = r.flagUnless(maskFlagIPv4, c.mask), d.nodeMask4
		default:
			c.mask, c.NodeMask = r.flagUnless(maskFlagIPv6, c.mask), d.nodeMask6
		}
	}
}

// flagUnless is the flag if somebody gave it, or there is no key that could be
// given instead.
func (r *resolver) flagUnless(flag, key string) string {
	if r.isSet(flag) {
		return flag
	}
	return cmp.Or(key, flag)
}

// maskFlags allows the combinations that upstream allows. four and six tell
// which families the pools are, or may be, of.
func (r *resolver) maskFlags(d *draft, four, six bool) {
	refuse := func(flag string, value int, problem, remedy string) {
		if r.isSet(flag) && !r.isWrong(flag) {
			r.complain(flag, itoa(value), problem, remedy)
		}
	}
	switch {
	case !four && !six:
		for _, flag := range []string{maskFlag, maskFlagIPv4, maskFlagIPv6} {
			if r.isSet(flag) {
				r.warn(flag, "has no effect without %s or a pool with a cidr", clusterFlag)
			}
		}
	case four && six && !r.isWrong(clusterFlag) && !r.isWrongIn(poolsKey):
		refuse(maskFlag, d.nodeMask, "does not say which of the two address families it is for",
			"use "+maskFlagIPv4+" and "+maskFlagIPv6)
	case r.isSet(maskFlag) && (r.isSet(maskFlagIPv4) || r.isSet(maskFlagIPv6)):
		refuse(maskFlag, d.nodeMask, "excludes "+maskFlagIPv4+" and "+maskFlagIPv6, "give only one of them")
	case !six:
		refuse(maskFlagIPv6, d.nodeMask6, "no pool has an IPv6 prefix", "remove it, or add such a prefix")
	case !four:
		refuse(maskFlagIPv4, d.nodeMask4, "no pool has an IPv4 prefix", "remove it, or add such a prefix")
	}
}
