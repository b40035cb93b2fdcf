package agent

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/internal/kube"
)

// wants says what each mover is to do, and which addresses none of them is to hold: such as are in no
// pool of the configuration that this process was started with, and such as a Node has itself.
func wants(
	k Knowledge, self string, movers []NamedMover, resumed map[netip.Addr]uint64, doubt bool, owners map[netip.Addr]string,
) (all []Want, unclaimed []addresses.Problem) {
	all = make([]Want, len(movers))
	for i := range all {
		all[i] = Want{Cluster: k.Cluster, Node: k.Node, Doubt: doubt}
	}
	for _, e := range k.Ledger.Entries() {
		at := slices.IndexFunc(movers, func(m NamedMover) bool { return m.has(e.Address) })
		mine := e.HeldBy(self) && (at < 0 || movers[at].Together || alone(e) == self)
		switch {
		case at < 0 && mine:
			unclaimed = append(unclaimed, addresses.Problem{
				Address: e.Address, Reason: addresses.Failed,
				Text: "no address pool of this node's configuration has the address: restart the agent if " +
					"the configuration has it by now, or add it to a pool",
			})
		case at < 0:
		case mine && !e.Held && owners[e.Address] != "":
			unclaimed = append(unclaimed, addresses.Problem{
				Address: e.Address, Reason: addresses.InUse,
				Text: fmt.Sprintf("Node %s has the address %s itself: take it out of the pool", owners[e.Address], e.Address),
			})
		case mine:
			epoch, was := resumed[e.Address]
			hold := Hold{Address: e.Address, Epoch: e.Epoch, Resumed: was && epoch == e.Epoch, Held: e.Held}
			all[at].Hold = append(all[at].Hold, hold)
		case len(e.Shares) > 0:
			all[at].Elsewhere = append(all[at].Elsewhere, e.Address)
		}
	}
	return all, unclaimed
}

// alone is the node that holds an address where only one can. The manager may have another mover for
// it than this agent, until the one or the other has the new configuration: then many nodes hold the
// address by the ledger, and by each of them alone it is the first of those.
func alone(e addresses.Entry) string {
	if len(e.Nodes) > 0 {
		return e.Nodes[0]
	}
	return e.Holder
}

// serving moves the addresses that wait from Hold to Elsewhere: with externalTrafficPolicy Local the
// former holder serves connections by endpoints that end until this node's kube-proxy says at the
// Service's port that its rules are there. What was held before stays, and so does what a provider
// leads here: no former holder gets its packets any more.
func serving(
	l addresses.Ledger, self string, all []Want, movers []NamedMover,
	before func(netip.Addr) bool, unready func(addresses.Endpoint) bool,
) (waiting []addresses.Entry) {
	for i, m := range movers {
		all[i].Hold = slices.DeleteFunc(all[i].Hold, func(h Hold) bool {
			e, _ := l.Entry(h.Address)
			own := addresses.Endpoint{Node: self, Port: e.Check()}
			if m.Routed || before(h.Address) || !ofService(own.Port) || !unready(own) {
				return false
			}
			waiting = append(waiting, e)
			all[i].Elsewhere = append(all[i].Elsewhere, h.Address)
			return true
		})
	}
	return waiting
}

// onlyResumed leaves what an earlier run held. To take another one means to tell the machine that has
// it from a stranger, which nobody can who knows no Nodes yet.
func onlyResumed(all []Want) {
	for i := range all {
		all[i].Hold = slices.DeleteFunc(all[i].Hold, func(h Hold) bool { return !h.Resumed })
	}
}

// owners are the addresses that Nodes have themselves, with their names. Whoever answers for one of
// them takes the node's traffic, and its kernel answers as a former holder would. But an address that
// was held before, here or anywhere, is not given up because a Node says that it has it: a kubelet may
// name any address, and what a Node had when the address was given to a Service was left out then.
func owners(nodes []*kube.Node, before func(netip.Addr) bool) map[netip.Addr]string {
	all := make(map[netip.Addr]string)
	for _, n := range nodes {
		for _, ips := range [][]netip.Addr{n.InternalIPs, n.ExternalIPs} {
			for _, a := range ips {
				if !before(a) {
					all[a] = n.Name
				}
			}
		}
	}
	return all
}

func (m NamedMover) has(a netip.Addr) bool {
	return slices.ContainsFunc(m.Pools, func(p addresses.Pool) bool { return p.Contains(a) })
}

// unheld are the addresses that no node holds and that this one can't: people look for the reason.
func unheld(l addresses.Ledger, elsewhere []netip.Addr, r addresses.Report) (all []addresses.Problem) {
	for _, a := range elsewhere {
		e, _ := l.Entry(a)
		if e.Holder == "" && len(e.Nodes) == 0 && !r.OnSegment(a) {
			all = append(all, addresses.Problem{Address: a, Reason: addresses.OffSegment})
		}
	}
	return all
}

// going are the addresses that a run after this one goes on with: what is held, what an earlier run
// held if this one has just begun with it, and what no router has heard of yet. A router keeps the
// routes of an agent that is gone, and takes them back if the next one does not announce them.
func going(all []Want, r addresses.Report) []addresses.Hold {
	on := slices.Clone(r.Held)
	for _, w := range all {
		for _, h := range w.Hold {
			held := func(is addresses.Hold) bool { return is.Address == h.Address }
			refused := slices.IndexFunc(r.Refused, func(p addresses.Problem) bool { return p.Address == h.Address })
			goes := h.Resumed
			if refused >= 0 {
				goes = r.Refused[refused].Reason == addresses.NoRouter
			}
			if goes && !slices.ContainsFunc(r.Held, held) {
				on = append(on, addresses.Hold{Address: h.Address, Epoch: h.Epoch})
			}
		}
	}
	slices.SortFunc(on, func(a, b addresses.Hold) int { return a.Address.Compare(b.Address) })
	return on
}

// loopback is where kube-proxy answers on its own node, unless it was told another address.
func loopback(f addresses.Family) netip.Addr {
	if f == addresses.IPv4 {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.IPv6Loopback()
}

// internal is the first InternalIP of a family, or the zero Addr: where its nodePortAddresses is
// "primary", kube-proxy opens Services' ports there alone.
func internal(n *kube.Node, f addresses.Family) netip.Addr {
	if n == nil {
		return netip.Addr{}
	}
	a, _ := addresses.OfFamily(n.InternalIPs, f)
	return a
}

// watched says which ports this node watches, and where: its own kube-proxy, those of holders that it
// is a watcher of, and its own ports of Services whose addresses wait until kube-proxy serves them.
// kube-proxy opens a Service's port in the families of the Service alone.
func watched(
	l addresses.Ledger, self string, nodes []*kube.Node, waiting []addresses.Entry,
) map[addresses.Endpoint][]netip.AddrPort {
	known := make(map[string]*kube.Node, len(nodes))
	var ready []string
	for _, n := range nodes {
		known[n.Name] = n
		if n.Ready {
			ready = append(ready, n.Name)
		}
	}
	all := make(map[addresses.Endpoint][]netip.AddrPort)
	add := func(e addresses.Endpoint, a netip.Addr) {
		at := netip.AddrPortFrom(a, uint16(e.Port))
		if a.IsValid() && e.Port > 0 && e.Port < 1<<16 && !slices.Contains(all[e], at) {
			all[e] = append(all[e], at)
		}
	}
	first := func(e addresses.Endpoint) { // kube-proxy and agents listen in both families
		if n := known[e.Node]; n != nil && len(n.InternalIPs) > 0 {
			add(e, n.InternalIPs[0])
		}
	}
	own := addresses.Endpoint{Node: self, Port: addresses.ProxyPort}
	add(own, loopback(addresses.IPv4))
	first(own)
	services := make(map[addresses.Endpoint]bool)
	for _, e := range l.Watched(self, ready) {
		if services[e] = ofService(e.Port); !services[e] {
			first(e)
		}
	}
	for _, entry := range l.Entries() {
		if e := (addresses.Endpoint{Node: entry.Holder, Port: entry.Check()}); services[e] {
			add(e, internal(known[e.Node], addresses.FamilyOf(entry.Address)))
		}
	}
	for _, entry := range waiting {
		e, f := addresses.Endpoint{Node: self, Port: entry.Check()}, addresses.FamilyOf(entry.Address)
		add(e, loopback(f))
		add(e, internal(known[self], f))
	}
	return all
}

// unfit says why a node should hold nothing whose own kube-proxy is silent.
func unfit() string {
	return fmt.Sprintf("kube-proxy on this node does not say at port %d, /healthz, that it is healthy: "+
		"look at its log", addresses.ProxyPort)
}
