package agent

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/internal/kube"
)

// situation is all that an agent decides on.
type situation struct {
	Knowledge
	self    string
	movers  []NamedMover
	nodes   []*kube.Node // none: they are not read yet
	resumed map[netip.Addr]uint64
	doubt   bool
	// before reports whether an address was to be held here before, and unready whether a port of this
	// node does not say yet that it serves.
	before  func(netip.Addr) bool
	unready func(addresses.Endpoint) bool
}

// decision is what follows.
type decision struct {
	wants []Want // of each mover
	// refused are those that no mover is to hold: such as are in no pool of the configuration that this
	// process was started with, and such as a Node has itself.
	refused []addresses.Problem
	// waiting are held elsewhere as long as this node's kube-proxy does not serve them.
	waiting []addresses.Entry
	passing []netip.Addr // see [Passing]
}

func (s situation) decide() decision {
	d := decision{wants: make([]Want, len(s.movers)), passing: Passing(s.Ledger, routed(s.movers), s.nodes)}
	for i := range d.wants {
		d.wants[i] = Want{Cluster: s.Cluster, Node: s.Node, Doubt: s.doubt}
	}
	owners := owners(s.nodes, s.before)
	for _, e := range s.Ledger.Entries() {
		at := slices.IndexFunc(s.movers, func(m NamedMover) bool { return m.has(e.Address) })
		mine := e.HeldBy(s.self) && (at < 0 || s.movers[at].Together || alone(e) == s.self)
		if at < 0 {
			if mine {
				d.refused = append(d.refused, addresses.Problem{
					Address: e.Address, Reason: addresses.Failed,
					Text: "no address pool of this node's configuration has the address: restart the agent if " +
						"the configuration has it by now, or add it to a pool",
				})
			}
			continue
		}
		w, leads := &d.wants[at], s.movers[at].Routed
		epoch, was := s.resumed[e.Address]
		hold := Hold{Address: e.Address, Epoch: e.Epoch, Resumed: was && epoch == e.Epoch, Held: e.Held}
		_, passes := slices.BinarySearchFunc(d.passing, e.Address, netip.Addr.Compare) // as of the ledger
		switch {
		case mine && !e.Held && owners[e.Address] != "":
			d.refused = append(d.refused, addresses.Problem{
				Address: e.Address, Reason: addresses.InUse,
				Text: fmt.Sprintf("Node %s has the address %s itself: take it out of the pool", owners[e.Address], e.Address),
			})
		case mine && len(s.nodes) == 0 && !hold.Resumed:
			// To take it would mean to tell the machine that has it from a stranger, which can't be done
			// while no Node is known.
		case mine && !leads && s.waits(e):
			d.waiting = append(d.waiting, e)
			w.Elsewhere = append(w.Elsewhere, e.Address)
		case mine:
			w.Hold = append(w.Hold, hold)
		case len(e.Shares) > 0 && (!leads || passes):
			// Where a provider leads them, those are left out that are not refused here: whoever answers
			// for one has its packets come.
			w.Elsewhere = append(w.Elsewhere, e.Address)
		}
	}
	return d
}

// waits reports whether an address is to be held elsewhere for now: with externalTrafficPolicy Local
// the former holder serves connections by endpoints that end until this node's kube-proxy says at the
// Service's port that its rules are there. What was held before stays, and what a provider leads here
// does not wait: no former holder gets its packets any more.
func (s situation) waits(e addresses.Entry) bool {
	own := addresses.Endpoint{Node: s.self, Port: e.Check()}
	return ofService(own.Port) && !s.before(e.Address) && s.unready(own)
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
