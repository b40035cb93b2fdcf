package agent

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/klog/v2"
)

// Proxy is a proxy neighbor entry: an address for which the kernel answers ARP on an
// interface, with the interface's own hardware address.
//
// The kernel does so only while it forwards, and only if its route to the address is a unicast
// route through another interface (net/ipv4/arp.c, arp_process). So within a podCIDR it
// answers for existing pods only: their routes use their own interfaces, and the rest of the
// podCIDR is unreachable. The alternative, the sysctl proxy_arp, needs no entries, but answers
// for every address that the machine reaches through another interface: on a server with a
// default route beside its VLAN, for every address outside the subnet. No daemon is involved
// in the replies: pods are found while the agent is being replaced.
type Proxy struct {
	// Link is the index of the interface.
	Link int
	Addr netip.Addr
	// Protocol identifies the owner, as in routes. Linux stores it since 5.0.
	Protocol uint8
}

// Ours reports whether the entry is marked as ours.
func (p Proxy) Ours() bool { return p.Protocol == Protocol }

func (p Proxy) String() string { return fmt.Sprintf("%s on interface %d", p.Addr, p.Link) }

func compareProxies(a, b Proxy) int {
	return cmp.Or(cmp.Compare(a.Link, b.Link), a.Addr.Compare(b.Addr))
}

// ProxyPlan changes proxy neighbor entries. Other programs' entries serve as well and are kept.
type ProxyPlan struct{ Add, Delete []Proxy }

// diffProxies compares the wanted with the existing entries. Addresses for which stays reports
// true are not removed; a nil stays keeps none. Both lists of the plan are sorted.
func diffProxies(want, have []Proxy, stays func(netip.Addr) bool) ProxyPlan {
	place := func(p Proxy) Proxy { return Proxy{Link: p.Link, Addr: p.Addr} }
	wanted, exists := make(map[Proxy]bool, len(want)), make(map[Proxy]bool, len(have))
	for _, p := range have {
		exists[place(p)] = true
	}
	var plan ProxyPlan
	for _, p := range want {
		wanted[place(p)] = true
		if !exists[place(p)] {
			plan.Add = append(plan.Add, p)
		}
	}
	for _, p := range have {
		if p.Ours() && !wanted[place(p)] && (stays == nil || !stays(p.Addr)) {
			plan.Delete = append(plan.Delete, p)
		}
	}
	slices.SortFunc(plan.Add, compareProxies)
	slices.SortFunc(plan.Delete, compareProxies)
	return plan
}

// unclaimed returns a function that reports whether an existing entry may be kept: no other
// Node has a podCIDR with its address, or one of own contains it. Two machines that answer ARP
// for one address take its packets from each other.
func (s Situation) unclaimed(own []netip.Prefix) func(netip.Addr) bool {
	var claimed []netip.Prefix
	for _, n := range s.Nodes {
		if n.Name != s.Self {
			claimed = append(claimed, n.PodCIDRs...)
		}
	}
	return func(a netip.Addr) bool { return contain(own, a) || !contain(claimed, a) }
}

// Lines returns a line for each change.
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

// spans returns sorted addresses as a range for each interface.
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

// proxyPart is their name in metrics and logs.
const proxyPart = "proxy ARP"

// writeProxies applies a plan. It stops at the first error, which the rest would cause too.
func (a *Agent) writeProxies(
	ctx context.Context, before *interest, plan ProxyPlan, failed *failures,
) {
	for _, p := range plan.Add {
		if err := a.Kernel.AddProxy(ctx, p); err != nil {
			failed.own = append(failed.own, fmt.Errorf("having ARP answered for %s: %w", p, err))
			return
		}
	}
	for _, p := range plan.Delete {
		if err := a.Kernel.DeleteProxy(ctx, p); err != nil {
			failed.peers = append(failed.peers, fmt.Errorf("having ARP answered no longer for %s: %w", p,
				err))
			return
		}
	}
	if before != nil &&
		slices.ContainsFunc(plan.Add, func(p Proxy) bool { return before.answers[p] }) {
		a.metrics.repairs.WithLabelValues(proxyPart).Inc()
	}
	for _, line := range plan.Lines() {
		klog.FromContext(ctx).Info("Changed", "part", proxyPart, "what", line)
	}
}
