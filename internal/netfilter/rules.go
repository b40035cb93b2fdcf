package netfilter

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"sigs.k8s.io/knftables"
)

// Desired is what the rules follow from. Prefixes are masked and unmapped.
type Desired struct {
	// PodCIDRs are the node's own.
	PodCIDRs []netip.Prefix
	// ClusterPods are the podCIDRs of all Nodes, and whatever else holds nothing
	// but pods. With InternalIPs, the addresses of all Nodes in the cluster's
	// network, they are the inside: pods reach it under their own addresses.
	ClusterPods []netip.Prefix
	InternalIPs []netip.Addr
	// ExternalIPs are further addresses of Nodes, from which packets for pods may
	// come.
	ExternalIPs []netip.Addr
	// ServerPrefixes are routed to machines of Nodes as a whole: packets for pods
	// may come from any address of them too.
	ServerPrefixes []netip.Prefix
	// FilterInbound keeps the outside from opening connections to the node's pods, but for the
	// Openings and from what is AllowedInbound. Private addresses too: a neighbor on the segment
	// needs only a route of its own to reach them.
	FilterInbound  bool
	AllowedInbound []netip.Prefix
	// Openings are of IPv6.
	Openings []Opening
	// RefuseHeld: what comes for one of the Held addresses, which are configured nowhere, and is not
	// redirected to a pod by kube-proxy is refused, and not sent on to where it came from. Held are
	// also such as another node holds and a provider leads here nevertheless. What comes for one
	// of the Served ports is dropped instead: kube-proxy is about to redirect it, or leaves it to
	// another node, and the sender tries again.
	RefuseHeld bool
	Held       []netip.Addr
	Served     []netip.AddrPort
}

// Opening lets TCP connections to a pod's address and port be opened from a prefix.
type Opening struct {
	From netip.Prefix
	To   netip.AddrPort
}

// chainKind tells a chain's hook.
type chainKind struct {
	kind     knftables.BaseChainType
	hook     knftables.BaseChainHook
	priority knftables.BaseChainPriority
}

// policy is that of every chain: what no rule judges is left to the chains of
// others.
const policy = knftables.AcceptPolicy

// chain is a chain with its rules in order, each in the words in which nft shows
// it; without a kind it is jumped to.
type chain struct {
	name  string
	kind  *chainKind
	rules []string
}

// set is a set of elements that don't overlap, in order.
type set struct {
	name     string
	kind     string // of its elements, as nft shows it
	elements []element
}

// element is a prefix, an endpoint or, in a set of openings, both.
type element Opening

// The kinds of sets.
const (
	prefixes4 = "ipv4_addr"
	prefixes6 = "ipv6_addr"
	served4   = "ipv4_addr . inet_service"
	served6   = "ipv6_addr . inet_service"
	openings6 = "ipv6_addr . ipv6_addr . inet_service"
)

// ruleset is the whole table.
type ruleset struct {
	chains []chain
	sets   []set
}

// rulesFor is the table that a node is to have, whose pods' interfaces begin with
// podLinks. It holds nothing that the node has no use for.
func rulesFor(want Desired, podLinks string) ruleset {
	var out ruleset
	var masquerade, forward []string
	var inside, outer [2]bool // the sets in use: of IPv4, of IPv6
	for _, pods := range want.PodCIDRs {
		family, f := "ip", 0
		if pods.Addr().Is6() {
			family, f = "ip6", 1
		}
		if masqueraded(pods) {
			inside[f] = true
			masquerade = append(masquerade, fmt.Sprintf("%[1]s saddr %[2]s %[1]s daddr != @%[3]s oifname != \"%[4]s*\" masquerade fully-random", family, shown(pods), setName("inside", f), podLinks))
		}
		if want.FilterInbound {
			inside[f], outer[f] = true, true
			forward = append(forward, fmt.Sprintf("%s daddr %s goto %s", family, shown(pods), inboundChain))
		}
	}
	addresses := [][]netip.Prefix{slices.Concat(want.ClusterPods, hosts(want.InternalIPs)), want.outer()}
	for i, base := range []string{"inside", "outer"} {
		byFamily := split(addresses[i])
		for f, used := range [][2]bool{inside, outer}[i] {
			if used {
				out.sets = append(out.sets, set{setName(base, f), []string{prefixes4, prefixes6}[f], prefixElements(minimal(byFamily[f]))})
			}
		}
	}
	// It is there while nothing is open too: the first opening then replaces no rule.
	if outer[1] {
		out.sets = append(out.sets, set{targetSet, openings6, minimalOpenings(want.Openings)})
	}
	if len(masquerade) > 0 {
		out.chains = append(out.chains, chain{"leaving", &chainKind{knftables.NATType, knftables.PostroutingHook, knftables.SNATPriority}, masquerade})
	}
	if len(forward) > 0 {
		out.chains = append(out.chains,
			chain{inboundChain, nil, inboundRules(outer)},
			chain{"forwarded", &chainKind{knftables.FilterType, knftables.ForwardHook, knftables.FilterPriority}, forward})
	}
	if want.RefuseHeld {
		out.refuseHeld(want)
	}
	return out
}

// refuseHeld refuses what comes for a held address and is not redirected by kube-proxy: what it
// redirects has a pod's address by then. Later, where packets are forwarded, the kernel has told the
// sender by a redirect that there is a shorter way, which counts against the rate of its ICMP
// errors. A packet that belongs to no connection is dropped: to refuse it would end the connection
// that it once was of. Neighbors that know the address ask it itself whether it is still there
// (RFC 4861, 7.3.3), which the agent answers and not the kernel. The sets are there while nothing
// is held, so that an address comes and goes by an edit of elements alone.
func (r *ruleset) refuseHeld(want Desired) {
	var rules []string
	for f, addrs := range split(hosts(want.Held)) {
		family, held, served := []string{"ip", "ip6"}[f], setName("held", f), setName("served", f)
		r.sets = append(r.sets,
			set{held, []string{prefixes4, prefixes6}[f], prefixElements(minimal(addrs))},
			set{served, []string{served4, served6}[f], servedElements(want.Served, f == 1)})
		to := family + " daddr @" + held
		if f == 1 {
			rules = append(rules, to+" icmpv6 type nd-neighbor-solicit drop")
		}
		rules = append(rules,
			to+" ct state invalid drop",
			fmt.Sprintf("%s daddr . th dport @%s drop", family, served),
			to+" meta l4proto tcp reject with tcp reset",
			to+" reject with "+[]string{"icmp port-unreachable", "icmpv6 port-unreachable"}[f])
	}
	afterDNAT := knftables.DNATPriority + " + 10"
	r.chains = append(r.chains, chain{"refused", &chainKind{knftables.FilterType, knftables.PreroutingHook, afterDNAT}, rules})
}

const (
	inboundChain = "inbound"
	targetSet    = "targets-6"
)

// outer are the sources outside the pod network whose packets to pods are let in. Pods with private
// addresses reach them under the node's.
func (d Desired) outer() []netip.Prefix {
	return slices.Concat(hosts(d.ExternalIPs), d.ServerPrefixes, d.AllowedInbound)
}

// inboundRules judge a packet for a pod. Accepting one
// here leaves it to the rules of others.
func inboundRules(families [2]bool) []string {
	rules := []string{"ct state established,related accept", "ct status dnat accept"}
	for f, family := range []string{"ip", "ip6"} {
		if families[f] {
			rules = append(rules,
				fmt.Sprintf("%s saddr @%s accept", family, setName("inside", f)),
				fmt.Sprintf("%s saddr @%s accept", family, setName("outer", f)))
		}
	}
	if families[1] {
		rules = append(rules, fmt.Sprintf("ip6 saddr . ip6 daddr . tcp dport @%s accept", targetSet))
	}
	return append(rules, "drop")
}

func setName(base string, family int) string { return base + []string{"-4", "-6"}[family] }

// masqueraded reports whether pods leave under the node's address: always in IPv4,
// in IPv6 where their own is a unique local one (RFC 4193).
func masqueraded(p netip.Prefix) bool { return p.Addr().Is4() || p.Addr().IsPrivate() }

func hosts(addrs []netip.Addr) []netip.Prefix {
	out := make([]netip.Prefix, len(addrs))
	for i, a := range addrs {
		out[i] = netip.PrefixFrom(a, a.BitLen())
	}
	return out
}

// split returns the prefixes of IPv4 and those of IPv6.
func split(all []netip.Prefix) (byFamily [2][]netip.Prefix) {
	for _, p := range all {
		f := 0
		if p.Addr().Is6() {
			f = 1
		}
		byFamily[f] = append(byFamily[f], p)
	}
	return byFamily
}

// minimal are the fewest prefixes that hold the same addresses, in order: a set
// of the kernel takes no overlaps, and few elements are listed faster.
func minimal(all []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range slices.SortedFunc(slices.Values(all), netip.Prefix.Compare) {
		if len(out) > 0 && out[len(out)-1].Overlaps(p) {
			continue // sorted by address, then by length: the wider one came first
		}
		out = append(out, p)
		for len(out) > 1 {
			parent, siblings := joined(out[len(out)-2], out[len(out)-1])
			if !siblings {
				break
			}
			out = append(out[:len(out)-2], parent)
		}
	}
	return out
}

// minimalOpenings are the fewest that let the same connections in, in order.
func minimalOpenings(all []Opening) []element {
	sources := map[netip.AddrPort][]netip.Prefix{}
	for _, o := range all {
		sources[o.To] = append(sources[o.To], o.From)
	}
	out := []element{}
	for to, from := range sources {
		for _, p := range minimal(from) {
			out = append(out, element{p, to})
		}
	}
	slices.SortFunc(out, element.compare)
	return out
}

func (e element) compare(other element) int {
	return cmp.Or(e.From.Compare(other.From), e.To.Compare(other.To))
}

// prefixElements are the elements of a set of prefixes.
func prefixElements(prefixes []netip.Prefix) []element {
	out := make([]element, len(prefixes))
	for i, p := range prefixes {
		out[i].From = p
	}
	return out
}

// servedElements are the endpoints of one family, in order.
func servedElements(all []netip.AddrPort, ipv6 bool) []element {
	out := []element{}
	for _, to := range all {
		if to.Addr().Is6() == ipv6 {
			out = append(out, element{To: to})
		}
	}
	slices.SortFunc(out, element.compare)
	return slices.Compact(out)
}

// joined is the prefix whose two halves a and b are.
func joined(a, b netip.Prefix) (parent netip.Prefix, siblings bool) {
	if a.Bits() != b.Bits() || a.Bits() == 0 || a == b {
		return netip.Prefix{}, false
	}
	parent = netip.PrefixFrom(a.Addr(), a.Bits()-1).Masked()
	return parent, parent.Overlaps(b)
}
