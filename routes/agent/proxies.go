package agent

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/klog/v2"
)

// Proxy is an address for which the kernel answers ARP on an interface, with the
// interface's own hardware address: a proxy neighbor entry.
//
// It does so only while it forwards, and only if its route to the address is a
// unicast one that leads out of another interface (net/ipv4/arp.c, arp_process). So
// of a podCIDR it answers for pods that exist: their routes lead to their own
// interfaces, and all else in the podCIDR is unreachable. The other way to have it
// answer, the sysctl proxy_arp, asks for no entry, but answers for whatever the
// machine reaches through another interface: on a server with a default route
// beside its VLAN, for every address outside the subnet. No daemon has to answer:
// pods are found while the agent is being replaced.
type Proxy struct {
	// Link is the index of the interface.
	Link int
	Addr netip.Addr
	// Protocol marks who made it, as with routes. Linux keeps it since 5.0.
	Protocol uint8
}

// Ours reports whether the entry is marked as ours.
func (p Proxy) Ours() bool { return p.Protocol == Protocol }

func (p Proxy) String() string { return fmt.Sprintf("%s on interface %d", p.Addr, p.Link) }

func compareProxies(a, b Proxy) int {
	return cmp.Or(cmp.Compare(a.Link, b.Link), a.Addr.Compare(b.Addr), cmp.Compare(a.Protocol, b.Protocol))
}

// ProxyPlan is what to change about the addresses that ARP is answered for. Those
// of somebody else are as good as ours, and never removed.
type ProxyPlan struct {
	Add, Delete []Proxy
	// Standing is how many answers are met already.
	Standing int
}

// diffProxies compares what should be answered for with what is. Addresses for which
// stays reports true are not removed; a nil stays keeps none. Both lists of the plan
// are sorted.
func diffProxies(want, have []Proxy, stays func(netip.Addr) bool) ProxyPlan {
	type place struct {
		link int
		addr netip.Addr
	}
	wanted, stands := make(map[place]bool, len(want)), make(map[place]bool, len(have))
	for _, p := range have {
		stands[place{p.Link, p.Addr}] = true
	}
	var plan ProxyPlan
	for _, p := range want {
		wanted[place{p.Link, p.Addr}] = true
		if stands[place{p.Link, p.Addr}] {
			plan.Standing++
			continue
		}
		plan.Add = append(plan.Add, p)
	}
	for _, p := range have {
		if p.Ours() && !wanted[place{p.Link, p.Addr}] && (stays == nil || !stays(p.Addr)) {
			plan.Delete = append(plan.Delete, p)
		}
	}
	slices.SortFunc(plan.Add, compareProxies)
	slices.SortFunc(plan.Delete, compareProxies)
	return plan
}

// unclaimed returns a function that reports whether what ARP is answered for at an
// address may stay so: no other Node has a podCIDR there, or one of own lies there.
// Two machines that answer for an address take its packets from each other.
func (s Situation) unclaimed(own []netip.Prefix) func(netip.Addr) bool {
	standing := make([]netip.Addr, len(s.Proxies))
	for i, p := range s.Proxies {
		standing[i] = p.Addr
	}
	slices.SortFunc(standing, netip.Addr.Compare)
	claimed := map[netip.Addr]bool{}
	for _, n := range s.Nodes {
		if n.Name == s.Self {
			continue
		}
		for _, p := range n.PodCIDRs {
			at, _ := slices.BinarySearchFunc(standing, p.Masked().Addr(), netip.Addr.Compare)
			for ; at < len(standing) && p.Contains(standing[at]); at++ {
				claimed[standing[at]] = true
			}
		}
	}
	return func(a netip.Addr) bool {
		return !claimed[a] || slices.ContainsFunc(own, func(p netip.Prefix) bool { return p.Contains(a) })
	}
}

// Lines tell what the plan does.
func (p ProxyPlan) Lines() []string {
	var lines []string
	for _, span := range spans(p.Add) {
		lines = append(lines, "ARP is answered for "+span)
	}
	for _, span := range spans(p.Delete) {
		lines = append(lines, "ARP is answered no longer for "+span)
	}
	return lines
}

// spans names sorted addresses by the first and last of each interface.
func spans(proxies []Proxy) []string {
	var found []string
	for start, end := 0, 0; start < len(proxies); start = end {
		for end < len(proxies) && proxies[end].Link == proxies[start].Link {
			end++
		}
		if end-start == 1 {
			found = append(found, proxies[start].String())
			continue
		}
		found = append(found, fmt.Sprintf("%d addresses, %s to %s, on interface %d",
			end-start, proxies[start].Addr, proxies[end-1].Addr, proxies[start].Link))
	}
	return found
}

// proxyPart is how metrics and the log call them.
const proxyPart = "proxy ARP"

// writeProxies carries a plan out, and stops where the kernel refuses: it would
// refuse the next of hundreds as well.
func (a *Agent) writeProxies(ctx context.Context, before *interest, plan ProxyPlan, failed *failures) {
	for _, p := range plan.Add {
		if err := a.Kernel.AddProxy(ctx, p); err != nil {
			failed.own = append(failed.own, fmt.Errorf("having ARP answered for %s: %w", p, err))
			return
		}
	}
	for _, p := range plan.Delete {
		if err := a.Kernel.DeleteProxy(ctx, p); err != nil {
			failed.peers = append(failed.peers, fmt.Errorf("having ARP answered no longer for %s: %w", p, err))
			return
		}
	}
	if before != nil && slices.ContainsFunc(plan.Add, func(p Proxy) bool { return before.answers[p] }) {
		a.metrics.repairs.WithLabelValues(proxyPart).Inc()
	}
	for _, line := range plan.Lines() {
		klog.FromContext(ctx).Info("Changed", "part", proxyPart, "what", line)
	}
}
