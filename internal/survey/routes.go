package survey

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/routes"
)

// RoutesView shows the network's route table, its budget, and its drift from the desired state.
type RoutesView struct {
	Network *NetworkRow `json:"network,omitempty"`
	Budget  *BudgetRow  `json:"budget,omitempty"`
	Routes  []RouteRow  `json:"routes"`
	Drift   Drift       `json:"drift"`
	Notes   []string    `json:"notes,omitempty"`
	NotSeen []string    `json:"notSeen,omitempty"`
}

// NetworkRow is the network of the routes.
type NetworkRow struct {
	ID            int64        `json:"id"`
	Name          string       `json:"name"`
	Range         netip.Prefix `json:"range"`
	Servers       int          `json:"servers"`
	LoadBalancers int          `json:"loadBalancers"`
}

// BudgetRow counts routes.
type BudgetRow struct {
	Limit   int `json:"limit"`
	Reserve int `json:"reserve"`
	Used    int `json:"used"`
	// Free is the number of routes that the cluster may still add.
	Free int `json:"free"`
	// Full is the number of Nodes' routes that do not fit into the budget.
	Full int `json:"refused"`
}

// Class is the owner of a route.
type Class string

const (
	Ours      Class = "ours"
	Stale     Class = "stale"     // ours, but not desired, or without a server of its Node
	Ambiguous Class = "ambiguous" // inside our ranges, but neither written nor adopted by us
	Foreign   Class = "foreign"
)

// RouteRow is an existing route.
type RouteRow struct {
	Destination netip.Prefix `json:"destination"`
	Gateway     netip.Addr   `json:"gateway"`
	// Node has the destination as podCIDR; it may be deleted.
	Node   string `json:"node,omitempty"`
	Server string `json:"server,omitempty"`
	Class  Class  `json:"class"`
}

// Drift is the difference between the route table and the desired state.
type Drift struct {
	Missing []DriftRow `json:"missing,omitempty"`
	Extra   []DriftRow `json:"extra,omitempty"`
}

// Empty reports whether the route table matches the desired state.
func (d Drift) Empty() bool { return len(d.Missing)+len(d.Extra) == 0 }

// DriftRow is a missing or undesired route.
type DriftRow struct {
	Destination netip.Prefix `json:"destination"`
	Gateway     netip.Addr   `json:"gateway,omitzero"`
	Node        string       `json:"node,omitempty"`
	Why         string       `json:"why"`
}

const RoutesParts = PartConfig | PartNodes | PartLedger | PartRouteRecord | PartNetwork | PartServers

// RoutesOf classifies the routes by owner and computes the drift.
func RoutesOf(s *Snapshot) (RoutesView, error) {
	v := RoutesView{Routes: []RouteRow{}, NotSeen: s.NotSeen()}
	if err := s.Require(PartConfig); err != nil {
		return v, err
	}
	switch {
	case s.Config.Provider == config.Metal:
		v.Notes = []string{"the provider is metal: routes are in the nodes' kernels, and there is no table of a cloud"}
	case s.Config.Network == "":
		v.Notes = []string{"no network is configured, so there is no route table of a cloud"}
	}
	if len(v.Notes) > 0 {
		v.NotSeen = nil
		return v, nil
	}
	if err := s.Require(PartNodes | PartNetwork | PartServers); err != nil {
		return v, err
	}
	r, err := s.Routing()
	if err != nil {
		return v, err
	}
	n := s.Network
	v.Network = &NetworkRow{n.ID, n.Name, n.IPRange, n.Servers, n.LoadBalancers}
	on := s.Config.Routes.Enabled
	if !on {
		// The CCM neither adds nor deletes routes.
		r.Plan, r.Wanted = routes.Plan{}, routes.Wanted{}
		v.Notes = append(v.Notes, "underlay-ccm writes no routes: they are switched off by its flags or configuration")
	}
	used := r.Ownership.Total()
	v.Budget = &BudgetRow{r.Budget.Limit, r.Budget.Reserve, used, r.Budget.Room(used), r.Plan.Full()}
	absent, _ := s.Absences() // no error here: Routing would have failed
	astray := s.astray(r, absent)
	v.Routes = append(v.Routes, s.classes(r, astray)...)
	if on {
		v.Drift = drift(r, absent)
		v.Drift.Extra = append(v.Drift.Extra, astray...)
	}
	if on && r.Usage.High() {
		v.Notes = append(v.Notes, r.Usage.String())
	}
	for _, d := range r.Wanted.Duplicates {
		v.Notes = append(v.Notes, "Node "+d.Node+": "+d.String())
	}
	return v, nil
}

func (s *Snapshot) classes(r routes.Decision, astray []DriftRow) []RouteRow {
	stale := map[routes.Route]bool{}
	for _, d := range astray {
		stale[routes.Route{Dst: d.Destination, Via: d.Gateway}] = true
	}
	for _, gone := range slices.Concat(r.Plan.Delete, r.Plan.Postponed) {
		stale[gone] = true
	}
	for _, c := range r.Plan.Replace {
		stale[c.Old] = true
	}
	nodes, servers := s.namesOf(r)
	var out []RouteRow
	add := func(class Class, list []routes.Route) {
		for _, route := range list {
			row := RouteRow{Destination: route.Dst, Gateway: route.Via, Node: nodes[route.Dst], Server: servers[route.Via], Class: class}
			if stale[route] {
				row.Class = Stale
			}
			out = append(out, row)
		}
	}
	add(Ours, r.Ownership.Ours)
	add(Ambiguous, r.Ownership.Ambiguous)
	add(Foreign, r.Ownership.Foreign)
	slices.SortStableFunc(out, func(a, b RouteRow) int {
		return cmp.Or(a.Destination.Compare(b.Destination), a.Gateway.Compare(b.Gateway))
	})
	return out
}

// departedMark is the suffix of a deleted Node's name.
const departedMark = " (gone)"

func (s *Snapshot) namesOf(r routes.Decision) (nodes map[netip.Prefix]string, servers map[netip.Addr]string) {
	nodes, servers = map[netip.Prefix]string{}, map[netip.Addr]string{}
	for _, d := range s.departed() {
		for _, p := range d.Prefixes {
			nodes[p] = d.Name + departedMark
		}
	}
	for i := len(r.Nodes) - 1; i >= 0; i-- {
		for _, p := range slices.Concat(r.Nodes[i].Dsts, r.Nodes[i].Inside) {
			nodes[p] = r.Nodes[i].Name
		}
	}
	for _, c := range r.Wanted.Routes {
		nodes[c.Dst] = c.Node // of two Nodes with this podCIDR, the one that keeps it
	}
	for _, server := range s.Servers {
		for _, a := range slices.Concat([]netip.Addr{server.PrivateIP}, server.AliasIPs) {
			if a.IsValid() {
				servers[a] = server.Name
			}
		}
	}
	return nodes, servers
}

// astray returns existing routes of Nodes without a server in the network, which are kept as
// long as the Nodes. It skips machines of other providers: the cloud doesn't list their
// addresses.
func (s *Snapshot) astray(r routes.Decision, absent map[string]Absence) []DriftRow {
	holders := map[netip.Prefix]routes.Node{}
	for _, n := range r.Nodes {
		if n.Via.IsValid() || OfOtherProvider(s.Node(n.Name)) {
			continue
		}
		for _, dst := range n.Dsts {
			if slices.Contains(r.Wanted.Held, dst) {
				holders[dst] = n
			}
		}
	}
	var out []DriftRow
	for _, route := range r.Ownership.Ours {
		n, held := holders[route.Dst]
		if !held {
			continue
		}
		leads := "no server"
		if id, attached := r.Gateways.Servers[route.Via]; attached {
			leads = "server " + id + ", which is not the Node's"
		}
		reason := n.Missing.Reason
		if a, gone := absent[n.Name]; gone {
			reason = a.Text
		}
		out = append(out, DriftRow{route.Dst, route.Via, n.Name, "it leads to " + leads + ", and stays as long as the Node: " + reason})
	}
	return out
}

func drift(r routes.Decision, absent map[string]Absence) Drift {
	var d Drift
	for _, c := range r.Plan.Replace {
		d.Missing = append(d.Missing, DriftRow{c.New.Dst, c.New.Via, c.New.Node, fmt.Sprintf("the route leads to %s, an earlier gateway, and will be replaced", c.Old.Via)})
	}
	for _, c := range r.Plan.Add {
		d.Missing = append(d.Missing, DriftRow{c.Dst, c.Via, c.Node, "will be added"})
	}
	for _, refused := range r.Plan.Refused {
		d.Missing = append(d.Missing, DriftRow{refused.Dst, refused.Via, refused.Node, refused.String()})
	}
	stands := map[netip.Prefix]bool{}
	for _, route := range slices.Concat(r.Ownership.Ours, r.Ownership.Ambiguous, r.Ownership.Foreign) {
		stands[route.Dst] = true
	}
	for _, n := range r.Nodes {
		if _, gone := absent[n.Name]; gone {
			continue // a Node without a server has no gateway
		}
		for _, dst := range n.Dsts {
			if !n.Via.IsValid() && !stands[dst] {
				d.Missing = append(d.Missing, DriftRow{Destination: dst, Node: n.Name, Why: n.Missing.Reason})
			}
		}
	}
	for _, gone := range slices.Concat(r.Plan.Delete, r.Plan.Postponed) {
		d.Extra = append(d.Extra, DriftRow{Destination: gone.Dst, Gateway: gone.Via, Why: "no Node wants it, and it will be deleted"})
	}
	slices.SortStableFunc(d.Missing, func(a, b DriftRow) int { return a.Destination.Compare(b.Destination) })
	return d
}
