package survey

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/table"
	"github.com/underlay-ccm/underlay/routes"
)

// The owners of a route.
const (
	Ours      = "ours"
	Stale     = "stale"     // ours, but not desired, or without a server of its Node
	Ambiguous = "ambiguous" // inside our ranges, but neither written nor adopted by us
	Foreign   = "foreign"
)

// driftRow is a missing or undesired route. Its gateway may be unknown, and it may have no Node.
type driftRow struct {
	routes.Route
	node, why string
}

const RoutesParts = PartConfig | PartNodes | PartLedger | PartRouteRecord |
	PartNetwork | PartServers

// RoutesOf shows the network's route table by owner, its budget, and its drift from the desired
// state.
func RoutesOf(s *Snapshot) (table.Page, error) {
	if err := s.Require(PartConfig); err != nil {
		return table.Page{}, err
	}
	switch {
	case s.Config.Provider == config.Metal:
		return table.Page{
			Notes: []string{
				"the provider is metal: routes are in the nodes' kernels, and there is no table of a cloud",
			},
		}, nil
	case s.Config.Network == "":
		return table.Page{
			Notes: []string{"no network is configured, so there is no route table of a cloud"},
		}, nil
	}
	if err := s.Require(PartNodes | PartNetwork | PartServers); err != nil {
		return table.Page{}, err
	}
	r, err := s.Routing()
	if err != nil {
		return table.Page{}, err
	}
	out := table.Page{NotSeen: s.NotSeen()}
	if !s.Config.Routes.Enabled {
		// The CCM neither adds nor deletes routes.
		r.Plan, r.Wanted = routes.Plan{}, routes.Wanted{}
		out.Notes = append(out.Notes,
			"underlay-ccm writes no routes: they are switched off by its flags or configuration")
	} else if f, _, short := r.Shortage(); short {
		out.Notes = append(out.Notes, f.String())
	}
	absent, _ := s.Absences() // no error here: Routing would have failed
	missing, extra := driftOf(r, absent)
	drift := table.New("drift", "Drift", "DRIFT", "DESTINATION", "GATEWAY", "NODE", "WHY")
	if s.Config.Routes.Enabled {
		addDrift(&drift, table.Bad.Cell("missing"), missing)
		addDrift(&drift, table.Warn.Cell("extra"), extra)
	}
	for _, d := range r.Wanted.Duplicates {
		out.Notes = append(out.Notes, "Node "+d.Node+": "+d.String())
	}
	existing := s.existing(r, extra)
	out.Tables = []table.Table{existing, s.budget(r), drift}
	if len(existing.Rows) == 0 {
		out.Lines = append(out.Lines, "The table is empty.")
	}
	if len(drift.Rows) == 0 {
		out.Lines = append(out.Lines, "No drift.")
	}
	return out, nil
}

func addDrift(t *table.Table, kind table.Cell, rows []driftRow) {
	for _, r := range rows {
		t.Add(kind, r.Dst, r.Via, table.OrNone(r.node), table.OneLine(r.why)).About = nodeOf(r.node)
	}
}

// nodeOf returns the object of a Node's name, with or without departedMark.
func nodeOf(name string) string {
	if name == "" {
		return ""
	}
	return "Node/" + strings.TrimSuffix(name, departedMark)
}

// budget counts the routes that the cluster may still add, and Nodes' routes that do not fit.
func (s *Snapshot) budget(r routes.Decision) table.Table {
	used, refused := r.Ownership.Total(), r.Plan.Refusals(routes.Full)
	free := r.Budget.Room(used)
	t := table.New("budget", "Budget", ">LIMIT", ">USED", ">RESERVE", ">FREE", ">REFUSED",
		">SERVERS ATTACHED")
	t.Add(r.Budget.Limit, used, r.Budget.Reserve, table.Toned(free, table.Bad, free == 0),
		table.Toned(refused, table.Bad, refused > 0), s.Network.Servers)
	return t
}

// existing returns the routes of the network by destination.
func (s *Snapshot) existing(r routes.Decision, extra []driftRow) table.Table {
	stale := map[routes.Route]bool{}
	for _, d := range extra {
		stale[d.Route] = true
	}
	for _, step := range r.Plan.Steps {
		stale[step.Old] = true
	}
	all := slices.Concat(r.Ownership.Ours, r.Ownership.Ambiguous, r.Ownership.Foreign)
	slices.SortStableFunc(all, func(a, b routes.Route) int {
		return cmp.Or(a.Dst.Compare(b.Dst), a.Via.Compare(b.Via))
	})
	title := fmt.Sprintf("Routes of network %s (%d), %s", s.Network.Name, s.Network.ID,
		s.Network.IPRange)
	t := table.New("routes", title, "DESTINATION", "GATEWAY", "NODE", "+SERVER", "CLASS")
	nodes, servers := s.namesOf(r)
	for _, route := range all {
		node, class := nodes[route.Dst], table.Good.Cell(Ours)
		_, attached := r.Gateways.Servers[route.Via]
		switch holder := s.Node(node); {
		case slices.Contains(r.Ownership.Foreign, route):
			class = table.Faint.Cell(Foreign)
		case stale[route]:
			class = table.Warn.Cell(Stale)
		case slices.Contains(r.Ownership.Ambiguous, route):
			class = table.Bad.Cell(Ambiguous)
		case s.Config.Routes.Enabled && !attached && (holder == nil || !OfOtherProvider(holder)):
			class = table.Warn.Cell(Stale) // the CCM keeps it as long as its Node
		}
		t.Add(route.Dst, route.Via, table.OrNone(node), table.OrNone(servers[route.Via]),
			class).About = nodeOf(node)
	}
	return t
}

// departedMark is the suffix of a deleted Node's name.
const departedMark = " (gone)"

func (s *Snapshot) namesOf(
	r routes.Decision,
) (nodes map[netip.Prefix]string, servers map[netip.Addr]string) {
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

func driftOf(r routes.Decision, absent map[string]Absence) (missing, extra []driftRow) {
	const stale = "no Node wants it, and it will be deleted"
	for _, s := range r.Plan.Steps {
		switch s.Verb {
		case routes.Delete:
			extra = append(extra, driftRow{s.Old, "", stale})
		case routes.Replace:
			why := fmt.Sprintf("the route leads to %s, an earlier gateway, and will be replaced", s.Old.Via)
			missing = append(missing, driftRow{s.New.Route, s.New.Node, why})
		case routes.Add:
			missing = append(missing, driftRow{s.New.Route, s.New.Node, "will be added"})
		}
	}
	for _, refused := range r.Plan.Refused {
		missing = append(missing, driftRow{refused.Route, refused.Node, refused.String()})
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
				missing = append(missing, driftRow{routes.Route{Dst: dst}, n.Name, n.Missing.Reason})
			}
		}
	}
	for _, postponed := range r.Plan.Postponed {
		extra = append(extra, driftRow{postponed, "", stale})
	}
	slices.SortStableFunc(missing, func(a, b driftRow) int { return a.Dst.Compare(b.Dst) })
	return missing, extra
}
