package netfilter

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"

	"sigs.k8s.io/knftables"

	"github.com/underlay-ccm/underlay/policy"
)

// PolicyTableName is the nftables table that enforces NetworkPolicies.
const PolicyTableName = "underlay-policy"

const (
	policyBase       = "forwarded"
	fromPods, toPods = "from-pods", "to-pods"
	// notFirst drops packets within TCP connections that are not tracked. Otherwise a connection
	// that was cut would continue, as one that the other side began, after a packet of that side.
	notFirst = "tcp flags & (fin | syn | rst | ack) != syn drop"
	// logFormat is the rule by which a chain logs the begin of packets. The kernel takes prefixes of
	// up to 127 bytes (NF_LOG_PREFIXLEN).
	logFormat = "limit rate 1/second burst 10 packets log prefix %.127q group %d snaplen 128"
)

// policyFrame returns the parts of the table that do not depend on pods: the chains with a fixed
// name, and the maps and sets that they refer to.
//
// Packets pass the forward hook once, after kube-proxy has chosen the destination, and before
// masquerading: a packet between pods of one node passes both directions there. Packets between
// the node and its pods don't pass it.
//
// A packet that is on its way during a commit may meet old rules with new elements, or new rules
// without their elements. So what no map and no chain of a pod decides is dropped by rules without
// sets.
func policyFrame(podCIDRs []netip.Prefix) (chains []chain, referred []knftables.Object) {
	forward, inward := []string{"ct state established,related accept"}, []string{}
	for f, ours := range split(podCIDRs) {
		if len(ours) == 0 {
			continue
		}
		family, kind, self := []string{"ip", "ip6"}[f], addressType(f), setName("self", f)
		referred = append(referred, &knftables.Set{Name: self, Type: kind + " . " + kind},
			&knftables.Map{Name: setName(fromPods, f), Type: kind + " : verdict"},
			&knftables.Map{Name: setName(toPods, f), Type: kind + " : verdict"})
		forward = append(forward,
			fmt.Sprintf("%[1]s saddr . %[1]s daddr @%[2]s accept", family, self),
			fmt.Sprintf("%s saddr vmap @%s", family, setName(fromPods, f)))
		inward = append(inward, fmt.Sprintf("%s daddr vmap @%s", family, setName(toPods, f)))
		for _, p := range minimal(ours) { // of an unknown pod
			forward = append(forward, fmt.Sprintf("%s saddr %s drop", family, shown(p)))
			inward = append(inward, fmt.Sprintf("%s daddr %s drop", family, shown(p)))
		}
	}
	// A pod with NET_RAW must not evade its policies by another source address.
	forward = append(forward, fmt.Sprintf("iifname \"%s*\" drop", podLinks), "goto "+toPods)
	chains = []chain{jumped(toPods, append(inward, "accept")...)}
	for d := range policy.Egress + 1 {
		chains = append(chains, jumped(openChain(d), notFirst, allowed(d)))
	}
	return append(chains, hooked(policyBase, knftables.FilterType, knftables.ForwardHook,
		knftables.FilterPriority, forward)), referred
}

// openChain is for pods that are isolated, but not in this direction.
func openChain(d policy.Direction) string { return "open-" + d.String() }

// allowed is the verdict for a packet that its direction allows.
func allowed(d policy.Direction) string { return []string{"accept", "goto " + toPods}[d] }

func policyChainName(c *policy.Chain) string {
	return []string{"in-", "out-"}[c.Direction] + c.Name
}

// policyRules returns the rules of a chain in a ruleset.
func policyRules(c *policy.Chain, r policy.Ruleset) []string {
	rules := []string{notFirst}
	for _, rule := range c.Rules {
		peers := []string{""}
		if s, some := r.Sets[rule.Set]; some {
			peers = nil
			for f, family := range []string{"ip", "ip6"} {
				if s.Kind == policy.Blocks && len(s.Elements[f]) == 0 {
					continue // another family's
				}
				key := family + " " + []string{"saddr", "daddr"}[c.Direction]
				if s.Kind == policy.Endpoints {
					key += " . meta l4proto . th dport"
				}
				peers = append(peers, fmt.Sprintf("%s @%s ", key, peerSetName(rule.Set, f)))
			}
		}
		for _, peer := range peers {
			for _, ports := range portMatches(rule.Ports) {
				rules = append(rules, peer+ports+allowed(c.Direction))
			}
		}
	}
	if r.LogGroup > 0 {
		rules = append(rules, fmt.Sprintf(logFormat, fmt.Sprint(c.Direction, c.Policies), r.LogGroup))
	}
	return append(rules, fmt.Sprintf("counter name %q drop", policyChainName(c)))
}

// portMatches returns one for each range: a set of ranges would be another one to read for nft,
// at each transaction.
func portMatches(ports []policy.PortRange) (all []string) {
	for _, p := range ports {
		match := fmt.Sprintf("meta l4proto %d ", p.Protocol)
		if p.First > 0 || p.Last < math.MaxUint16 {
			match += fmt.Sprintf("th dport %d-%d ", p.First, p.Last)
		}
		all = append(all, match)
	}
	if len(ports) == 0 {
		return []string{""}
	}
	return all
}

func peerSetName(digest string, f int) string { return setName("peer-"+digest, f) }

func peerSet(s policy.Set, f int) *knftables.Set {
	out := &knftables.Set{Name: peerSetName(s.Name, f), Type: addressType(f)}
	switch s.Kind {
	case policy.Endpoints:
		out.Type += " . inet_proto" + portType
	case policy.Blocks:
		out.Flags = []knftables.SetFlag{knftables.IntervalFlag}
	}
	return out
}

func peerKey(e policy.Element) []string {
	key := []string{shown(e.Prefix)}
	if e.Protocol > 0 {
		key = append(key, fmt.Sprint(uint8(e.Protocol)), fmt.Sprint(e.Port))
	}
	return key
}

// verdictsOf returns the verdict for an address by direction.
func verdictsOf(both policy.Chains) (out [2]string) {
	for i, c := range both {
		d := policy.Direction(i)
		switch {
		case c != nil:
			out[d] = "jump " + policyChainName(c)
		case both[1-d] != nil:
			out[d] = "jump " + openChain(d)
		default:
			out[d] = allowed(d)
		}
	}
	return out
}

func chainsOf(r policy.Ruleset) map[string]*policy.Chain {
	all := map[string]*policy.Chain{}
	for _, both := range r.Pods {
		for _, c := range both {
			if c != nil {
				all[policyChainName(c)] = c
			}
		}
	}
	return all
}

// policyEdit is the change from one ruleset to another as a transaction.
type policyEdit struct {
	tx *knftables.Transaction
	// chains, sets and elements count changes.
	chains, sets, elements int
	// forbids means that something may be forbidden that was allowed.
	forbids bool
}

// edit fills the transaction. The frame of both is the same. Sets precede the rules that refer
// to them, chains precede elements that refer to them, and deletions are in the opposite order.
func (e *policyEdit) edit(old, now policy.Ruleset) {
	for _, name := range slices.Sorted(maps.Keys(now.Sets)) {
		e.editSet(old.Sets[name], now.Sets[name])
	}
	before, after := chainsOf(old), chainsOf(now)
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if before[name] != nil {
			continue
		}
		e.chains++
		e.tx.Add(&knftables.Counter{Name: name})
		jumped(name, policyRules(after[name], now)...).addTo(e.tx)
	}
	e.editPods(old.Pods, now.Pods)
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if after[name] == nil {
			e.chains++
			e.tx.Flush(&knftables.Chain{Name: name})
			e.tx.Delete(&knftables.Chain{Name: name})
			e.tx.Delete(&knftables.Counter{Name: name})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(old.Sets)) {
		if _, kept := now.Sets[name]; !kept {
			e.sets++
			for f := range 2 {
				e.tx.Delete(&knftables.Set{Name: peerSetName(name, f)})
			}
		}
	}
}

func (e *policyEdit) editSet(old, now policy.Set) {
	if old.Name == "" {
		e.sets++
		for f := range 2 {
			e.tx.Add(peerSet(now, f))
		}
	}
	for f := range 2 {
		gone, added := difference(old.Elements[f], now.Elements[f])
		for _, one := range gone {
			e.tx.Delete(&knftables.Element{Set: peerSetName(now.Name, f), Key: peerKey(one)})
		}
		for _, one := range added {
			e.tx.Add(&knftables.Element{Set: peerSetName(now.Name, f), Key: peerKey(one)})
		}
		e.elements += len(gone) + len(added)
		e.forbids = e.forbids || len(gone) > 0
	}
}

func (e *policyEdit) editPods(old, now map[netip.Addr]policy.Chains) {
	addresses := map[netip.Addr]policy.Chains{}
	maps.Copy(addresses, old)
	maps.Copy(addresses, now)
	for _, a := range slices.SortedFunc(maps.Keys(addresses), netip.Addr.Compare) {
		f := familyOf(a)
		wasChains, was := old[a]
		isChains, is := now[a]
		before, after := verdictsOf(wasChains), verdictsOf(isChains)
		if was == is && before == after {
			continue
		}
		e.elements++
		e.forbids = e.forbids || was
		for d, base := range []string{toPods, fromPods} {
			if was {
				e.tx.Delete(&knftables.Element{Map: setName(base, f), Key: []string{a.String()}})
			}
			if is {
				e.tx.Add(&knftables.Element{
					Map: setName(base, f), Key: []string{a.String()}, Value: []string{after[d]},
				})
			}
		}
		self := &knftables.Element{Set: setName("self", f), Key: []string{a.String(), a.String()}}
		switch {
		case !was:
			e.tx.Add(self)
		case !is:
			e.tx.Delete(self)
		}
	}
}

// difference compares slices in order. Slices that share memory are the same.
func difference(a, b []policy.Element) (onlyA, onlyB []policy.Element) {
	if len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) {
		return nil, nil
	}
	return compareSorted(a, b, policy.Element.Compare)
}
