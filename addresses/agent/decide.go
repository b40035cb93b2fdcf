package agent

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/internal/kube"
)

type situation struct {
	Knowledge
	self    string
	movers  []Mover
	nodes   []*kube.Node // empty: not read yet
	resumed map[netip.Addr]uint64
	doubt   bool
	// before reports whether this node was to hold an address before, and unready whether a port of
	// it does not serve yet.
	before  func(netip.Addr) bool
	unready func(addresses.Endpoint) bool
}

type decision struct {
	wants []addresses.Assignment // by index of the mover
	// refused are addresses that no mover is to hold: in no pool of this process's configuration,
	// or used by a Node itself.
	refused []addresses.Problem
	// waiting are held elsewhere until this node's kube-proxy serves them.
	waiting []addresses.Entry
	passing []netip.Addr // the result of [Passing]
}

func (s situation) decide() decision {
	d := decision{
		wants:   make([]addresses.Assignment, len(s.movers)),
		passing: Passing(s.Ledger, routed(s.movers), s.nodes),
	}
	for i := range d.wants {
		d.wants[i] = addresses.Assignment{Cluster: s.Cluster, Doubt: s.doubt, Node: s.Node}
	}
	owners := owners(s.nodes, s.before)
	for _, e := range s.Ledger.Entries() {
		at := moverOf(s.movers, e.Address)
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
		hold := addresses.Assigned{
			Address: e.Address, Epoch: e.Epoch, Resumed: was && epoch == e.Epoch, Held: e.Held,
		}
		_, passes := slices.BinarySearchFunc(d.passing, e.Address, netip.Addr.Compare) // sorted
		switch {
		case mine && !e.Held && owners[e.Address] != "":
			d.refused = append(d.refused, addresses.Problem{
				Address: e.Address, Reason: addresses.InUse,
				Text: fmt.Sprintf("Node %s has the address %s itself: take it out of the pool",
					owners[e.Address], e.Address),
			})
		case mine && len(s.nodes) == 0 && !hold.Resumed:
			// Before Nodes are read, a cluster member can't be distinguished from an external host.
		case mine && !leads && s.waits(e):
			d.waiting = append(d.waiting, e)
			w.Elsewhere = append(w.Elsewhere, e.Address)
		case mine:
			w.Hold = append(w.Hold, hold)
		case len(e.Shares) > 0 && (!leads || passes):
			// Replies for an address attract its packets. So of routed addresses, only those that
			// the packet filter rejects here (passing) are included.
			w.Elsewhere = append(w.Elsewhere, e.Address)
		}
	}
	return d
}

// Passing returns the addresses of Services that a provider may route here while another node holds
// them. kube-proxy serves them on every node. The packet filter must reject the rest, which would
// otherwise loop between the node's default route and the provider.
//
// Addresses of Nodes are excluded: they are used by more than Services' ports. So the result is
// empty before Nodes are read.
func Passing(l addresses.Ledger, routed []addresses.Pool, nodes []*kube.Node) (all []netip.Addr) {
	if len(routed) == 0 || len(nodes) == 0 {
		return nil
	}
	owned := owners(nodes, func(netip.Addr) bool { return false })
	for _, e := range l.Entries() {
		led := slices.ContainsFunc(routed, func(p addresses.Pool) bool { return p.Contains(e.Address) })
		if led && len(e.Shares) > 0 && (e.Held || owned[e.Address] == "") {
			all = append(all, e.Address)
		}
	}
	return all
}

func routed(movers []Mover) (pools []addresses.Pool) {
	for _, m := range movers {
		if m.Routed {
			pools = append(pools, m.Pools...)
		}
	}
	return pools
}

// waits reports whether an address should stay elsewhere for now: with externalTrafficPolicy Local,
// the former holder serves connections by terminating endpoints until this node's health check node
// port reports that the rules are written. Addresses that were held before don't wait, nor do those
// that a provider routes here, as the former holder no longer gets their packets.
func (s situation) waits(e addresses.Entry) bool {
	own := addresses.Endpoint{Node: s.self, Port: e.Check()}
	return ofService(own.Port) && !s.before(e.Address) && s.unready(own)
}

// alone returns the single node that may hold an address if its mover is not Together. The ledger
// can have many Nodes for it while manager and agent have different configurations of the pool.
func alone(e addresses.Entry) string {
	if len(e.Nodes) > 0 {
		return e.Nodes[0]
	}
	return e.Holder
}

// owners returns the names of Nodes by their own addresses. Holding such an address would take over
// the Node's traffic, and the Node's kernel replies as a former holder's does. An address that was
// held before, on any node, is not released because a Node reports it: a kubelet may report any
// address, and addresses of Nodes were excluded when the Service got its address.
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

// moverOf returns the index of the first mover with a pool for an address, or -1.
func moverOf(all []Mover, a netip.Addr) int {
	return slices.IndexFunc(all, func(m Mover) bool {
		return slices.ContainsFunc(m.Pools, func(p addresses.Pool) bool { return p.Contains(a) })
	})
}

// unheld returns addresses without a holder that are on no segment here, as a hint to users.
func unheld(
	l addresses.Ledger, elsewhere []netip.Addr, r addresses.Report,
) (all []addresses.Problem) {
	for _, a := range elsewhere {
		e, _ := l.Entry(a)
		if e.Holder == "" && len(e.Nodes) == 0 && !r.OnSegment(a) {
			all = append(all, addresses.Problem{Address: a, Reason: addresses.OffSegment})
		}
	}
	return all
}

// going returns the addresses that the next run restores: those held, those not yet taken over from
// an earlier run, and those that no router has received. Routers keep the routes of an agent that
// ended, and remove them if the next run does not announce them.
func going(all []addresses.Assignment, r addresses.Report) []addresses.Hold {
	on := slices.Clone(r.Held)
	for _, w := range all {
		for _, h := range w.Hold {
			held := func(is addresses.Hold) bool { return is.Address == h.Address }
			refused := slices.IndexFunc(r.Refused, func(p addresses.Problem) bool {
				return p.Address == h.Address
			})
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

// loopback returns where kube-proxy serves health checks on its own node by default.
func loopback(f addresses.Family) netip.Addr {
	if f == addresses.IPv4 {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.IPv6Loopback()
}

// internal returns the first InternalIP of a family, or the zero Addr. With nodePortAddresses
// "primary", kube-proxy opens Services' ports only there.
func internal(n *kube.Node, f addresses.Family) netip.Addr {
	if n == nil {
		return netip.Addr{}
	}
	a, _ := addresses.OfFamily(n.InternalIPs, f)
	return a
}

// watched returns the ports that this node watches, and where: its own kube-proxy, those that the
// ledger assigns to it, and its own health check node ports of waiting addresses. kube-proxy opens
// a Service's port only in the Service's families.
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

func unfit() string {
	return fmt.Sprintf("kube-proxy on this node does not report at port %d, /healthz, that it is healthy: "+
		"look at its log", addresses.ProxyPort)
}
