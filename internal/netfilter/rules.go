package netfilter

import (
	"fmt"
	"net/netip"
	"slices"

	"sigs.k8s.io/knftables"
)

// Desired is the input of the rules. Prefixes are masked and unmapped.
type Desired struct {
	// PodCIDRs are those of the node itself.
	PodCIDRs []netip.Prefix
	// ClusterPods are the podCIDRs of all Nodes and other prefixes that contain only pods.
	// Together with InternalIPs, the addresses of all Nodes in the cluster's network, they are
	// the inside, which pods reach without masquerading.
	ClusterPods []netip.Prefix
	InternalIPs []netip.Addr
	// ExternalIPs are further addresses of Nodes that may send packets to pods.
	ExternalIPs []netip.Addr
	// ServerPrefixes are routed to machines of Nodes; any of their addresses may send to pods.
	ServerPrefixes []netip.Prefix
	// FilterInbound drops connections from outside to the node's pods, except for Openings and
	// from AllowedInbound. This includes private addresses: a neighbor on the segment only needs
	// a route of its own to reach pods.
	FilterInbound  bool
	AllowedInbound []netip.Prefix
	// Openings are IPv6.
	Openings []Opening
	// Clamped is an interface with a smaller MTU than others: TCP connections of forwarded
	// packets over it get a segment size that fits ClampedMTU, since their ends may not receive
	// the ICMP errors about larger packets.
	Clamped    string
	ClampedMTU int
	// ClampedOnly drops packets between the node's pods and ClusterPods or InternalIPs that
	// don't pass the Clamped interface, nor stay on the node.
	ClampedOnly bool
	// RefuseHeld rejects packets to the Held addresses, which are configured on no interface,
	// that kube-proxy does not redirect to a pod, instead of forwarding them back to their
	// source. Held includes addresses of other nodes that a provider still routes here. Packets
	// to the Served ports are dropped: kube-proxy is about to redirect them, or leaves them to
	// another node, and the sender retries.
	RefuseHeld bool
	Held       []netip.Addr
	Served     []netip.AddrPort
}

// Opening allows TCP connections from a prefix to a pod's address and port.
type Opening struct {
	From netip.Prefix
	To   netip.AddrPort
}

// chain has rules in the form in which nft lists them. Without a hook it is only jumped to.
type chain struct {
	knftables.Chain
	rules []string
}

func jumped(name string, rules ...string) chain {
	return chain{knftables.Chain{Name: name}, rules}
}

// hooked returns a chain that leaves packets which match no rule to other tables.
func hooked(
	name string, kind knftables.BaseChainType, hook knftables.BaseChainHook,
	priority knftables.BaseChainPriority, rules []string,
) chain {
	return chain{knftables.Chain{
		Name: name, Type: &kind, Hook: &hook, Priority: &priority,
		Policy: knftables.PtrTo(knftables.AcceptPolicy),
	}, rules}
}

// set is a set of sorted elements that don't overlap.
type set struct {
	name     string
	kind     string   // of its elements, as nft lists it
	elements []string // as nft takes them
}

const (
	portType  = " . inet_service"
	openings6 = "ipv6_addr . ipv6_addr" + portType
)

func addressType(family int) string { return []string{"ipv4_addr", "ipv6_addr"}[family] }

type ruleset struct {
	chains []chain
	sets   []set
}

// rulesFor returns the table of a node. It contains only the chains and sets that the node needs.
func rulesFor(want Desired) ruleset {
	var out ruleset
	var masquerade, forward, only []string
	var inside, outer [2]bool // whether the sets of IPv4 and IPv6 are used
	links := fmt.Sprintf("{ %q, %q }", podLinks+"*", want.Clamped)
	for _, pods := range want.PodCIDRs {
		f := familyOf(pods.Addr())
		family, known, ours := []string{"ip", "ip6"}[f], setName("inside", f), shown(pods)
		if masqueraded(pods.Addr()) {
			inside[f] = true
			masquerade = append(masquerade, fmt.Sprintf("%[1]s saddr %[2]s %[1]s daddr != @%[3]s oifname != \"%[4]s*\" masquerade fully-random", family, ours, known, podLinks))
		}
		if want.ClampedOnly {
			inside[f] = true
			only = append(only,
				fmt.Sprintf("%[1]s saddr %[2]s %[1]s daddr @%[3]s oifname != %[4]s drop", family, ours, known,
					links),
				fmt.Sprintf("%[1]s daddr %[2]s %[1]s saddr @%[3]s iifname != %[4]s drop", family, ours, known,
					links))
		}
		if want.FilterInbound {
			inside[f], outer[f] = true, true
			forward = append(forward, fmt.Sprintf("%s daddr %s goto %s", family, ours, inboundChain))
		}
	}
	out.addPrefixes("inside", want.inside(), inside)
	out.addPrefixes("outer", want.outer(), outer)
	// The set exists without openings too, so that the first opening changes no rule.
	if outer[1] {
		out.sets = append(out.sets, set{targetSet, openings6, openingElements(want.Openings)})
	}
	out.addChain(hooked("leaving", knftables.NATType, knftables.PostroutingHook,
		knftables.SNATPriority, masquerade))
	if len(forward) > 0 {
		out.addChain(jumped(inboundChain, inboundRules(outer)...))
	}
	out.addChain(hooked("forwarded", knftables.FilterType, knftables.ForwardHook,
		knftables.FilterPriority, forward))
	out.addChain(hooked("encrypted", knftables.FilterType, knftables.ForwardHook,
		knftables.FilterPriority, only))
	if want.Clamped != "" && want.ClampedMTU > 0 {
		out.clamp(want)
	}
	if want.RefuseHeld {
		out.refuseHeld(want)
	}
	return out
}

// addChain adds a chain, unless it has no rules.
func (r *ruleset) addChain(c chain) {
	if len(c.rules) > 0 {
		r.chains = append(r.chains, c)
	}
}

// addPrefixes adds the sets of the families that are used.
func (r *ruleset) addPrefixes(base string, all []netip.Prefix, used [2]bool) {
	for f, prefixes := range split(all) {
		if used[f] {
			r.sets = append(r.sets, set{setName(base, f), addressType(f), prefixElements(prefixes)})
		}
	}
}

// clamp limits the segment size in both directions: the packets of each end have the other's.
func (r *ruleset) clamp(want Desired) {
	var rules []string
	for f, headers := range []int{20 + 20, 40 + 20} {
		for _, side := range []string{"iifname", "oifname"} {
			rules = append(rules,
				fmt.Sprintf("meta nfproto %s %s %q tcp flags syn / syn,rst tcp option maxseg size set %d",
					[]string{"ipv4", "ipv6"}[f], side, want.Clamped, want.ClampedMTU-headers))
		}
	}
	r.addChain(hooked("clamped", knftables.FilterType, knftables.ForwardHook,
		knftables.ManglePriority, rules))
}

// refuseHeld rejects packets to held addresses after kube-proxy's DNAT, which replaces the
// destination by a pod's address. In the forward hook it would be too late: there the kernel has
// already sent an ICMP redirect, which counts against the rate limit of ICMP errors. Packets in
// state invalid are dropped, because a reject would end the connection that they belonged to.
// Neighbor solicitations to the address (RFC 4861, section 7.3.3) are dropped because the agent
// answers them, not the kernel. The sets exist without held addresses too, so that adding or
// removing an address only edits elements.
func (r *ruleset) refuseHeld(want Desired) {
	var rules []string
	for f, addrs := range split(hosts(want.Held)) {
		family, held, served := []string{"ip", "ip6"}[f], setName("held", f), setName("served", f)
		r.sets = append(r.sets,
			set{held, addressType(f), prefixElements(addrs)},
			set{served, addressType(f) + portType, servedElements(want.Served, f)})
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
	r.addChain(hooked("refused", knftables.FilterType, knftables.PreroutingHook,
		knftables.DNATPriority+" + 10", rules))
}

const (
	inboundChain = "inbound"
	targetSet    = "targets-6"
)

// inside returns the addresses that pods reach without masquerading.
func (d Desired) inside() []netip.Prefix {
	return slices.Concat(d.ClusterPods, hosts(d.InternalIPs))
}

// outer returns the sources outside the pod network that may send packets to pods. Packets to them
// from pods with private addresses are masqueraded.
func (d Desired) outer() []netip.Prefix {
	return slices.Concat(hosts(d.ExternalIPs), d.ServerPrefixes, d.AllowedInbound)
}

// inboundRules returns the rules for packets to pods. Other tables still filter accepted packets.
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

// masqueraded reports whether packets from pods to the outside are masqueraded: always for IPv4,
// and for unique local IPv6 addresses (RFC 4193).
func masqueraded(pod netip.Addr) bool { return pod.Is4() || pod.IsPrivate() }

// familyOf returns 0 for IPv4 and 1 for IPv6.
func familyOf(a netip.Addr) int { return a.BitLen() / 128 }

func hosts(addrs []netip.Addr) []netip.Prefix {
	out := make([]netip.Prefix, len(addrs))
	for i, a := range addrs {
		out[i] = netip.PrefixFrom(a, a.BitLen())
	}
	return out
}

func split(all []netip.Prefix) (byFamily [2][]netip.Prefix) {
	for _, p := range all {
		f := familyOf(p.Addr())
		byFamily[f] = append(byFamily[f], p)
	}
	return byFamily
}

// minimal returns the fewest prefixes that contain the same addresses, in order: a set in the
// kernel rejects overlaps, and fewer elements are faster to list.
func minimal(all []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range slices.SortedFunc(slices.Values(all), netip.Prefix.Compare) {
		if len(out) > 0 && out[len(out)-1].Overlaps(p) {
			continue // sorted by address, then by length: the wider prefix precedes
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

func prefixElements(all []netip.Prefix) []string {
	out := []string{}
	for _, p := range minimal(all) {
		out = append(out, shown(p))
	}
	slices.Sort(out)
	return out
}

func servedElements(all []netip.AddrPort, family int) []string {
	out := []string{}
	for _, to := range all {
		if familyOf(to.Addr()) == family {
			out = append(out, endpoint(to))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func endpoint(to netip.AddrPort) string { return fmt.Sprintf("%s . %d", to.Addr(), to.Port()) }

// openingElements returns the fewest elements that allow the same connections.
func openingElements(all []Opening) []string {
	sources := map[netip.AddrPort][]netip.Prefix{}
	for _, o := range all {
		sources[o.To] = append(sources[o.To], o.From)
	}
	out := []string{}
	for to, from := range sources {
		for _, p := range minimal(from) {
			out = append(out, shown(p)+" . "+endpoint(to))
		}
	}
	slices.Sort(out)
	return out
}

// joined returns the prefix of which a and b are the halves.
func joined(a, b netip.Prefix) (parent netip.Prefix, siblings bool) {
	if a.Bits() != b.Bits() || a.Bits() == 0 || a == b {
		return netip.Prefix{}, false
	}
	parent = netip.PrefixFrom(a.Addr(), a.Bits()-1).Masked()
	return parent, parent.Overlaps(b)
}
