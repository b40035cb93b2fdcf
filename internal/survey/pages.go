package survey

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/underlay-ccm/underlay/internal/table"
)

// Page shows the pools.
func (v PoolsView) Page() table.Page {
	t := table.New("", "NAME", "CIDR", "SOURCE", "MASK", "STATE", ">CAPACITY", ">FREE", ">USED",
		">QUARANTINED", ">FOREIGN", "+>EXCLUDED")
	for _, p := range v.Pools {
		active := p.State == "active"
		cidr, capacity := any(p.CIDR), any(p.Capacity)
		free := any(table.Toned(p.Free, table.Bad, p.Free == 0 && active))
		if p.Unlimited {
			cidr, capacity, free = "each server's own", "unlimited", "unlimited"
		}
		t.Add(p.Name, cidr, p.Source, fmt.Sprint("/", p.Mask), table.Toned(p.State, table.Warn, !active),
			capacity, free, p.Used, p.Quarantined, p.Foreign, p.Excluded)
	}
	out := table.Page{Tables: []table.Table{t}, Notes: append(v.Removed, v.Notes...), NotSeen: v.NotSeen}
	if v.Room != nil {
		out.Lines = []string{fmt.Sprintf("Room for %d more Nodes.", *v.Room)}
	}
	return out
}

// Page shows the Nodes.
func (v NodesView) Page() table.Page {
	t := table.New("", "NODE", "PODCIDRS", "ROUTE", "VIA", "FAMILIES", "+READY",
		"NETWORKUNAVAILABLE", "PODCIDRSALLOCATED", "PEERSREACHABLE", "+AGE", "+PROVIDER ID", "+SERVER", "+WIREGUARD PORTS", "WHY")
	tones := map[string]table.Tone{
		RouteStands: table.Good, RouteTunnel: table.Good, RouteMissing: table.Bad, RouteStale: table.Bad,
		RouteNoPodCIDR: table.Bad, RouteNotNeeded: table.Faint, RouteNotSeen: table.Faint,
	}
	for _, n := range v.Nodes {
		t.Add(n.Name, table.OrNone(Join(n.PodCIDRs, ",")), tones[n.Route.State].Cell(n.Route.String()),
			n.Route.Via, table.OrNone(FamiliesText(n.Families)),
			n.Ready.cell("True"), n.NetworkUnavailable.cell("False"), n.PodCIDRsAllocated.cell("True"), n.PeersReachable.cell("True"),
			duration.HumanDuration(n.Age), table.OrNone(n.ProviderID), table.OrNone(n.Server), table.OrNone(strings.Trim(fmt.Sprint(n.WireGuardPorts), "[]")),
			table.Warn.Cell(strings.Join(n.Why, "; "))).About = "Node/" + n.Name
	}
	gone := table.New("Gone, podCIDRs in quarantine", "NODE", "PODCIDRS", "RELEASED", "FREE AGAIN", "+UID")
	for _, g := range v.Gone {
		free := table.None
		if !g.Free.IsZero() {
			free = clock(g.Free)
		}
		gone.Add(g.Name, Join(g.PodCIDRs, ","), clock(g.Released), free, g.UID).About = "Node/" + g.Name
	}
	out := table.Page{Tables: []table.Table{t, gone}, NotSeen: v.NotSeen}
	if len(v.Nodes) == 0 {
		out.Lines = []string{"The cluster has no Nodes."}
	}
	return out
}

// cell is Good if the condition has the wanted status.
func (c *ConditionRow) cell(wanted string) table.Cell {
	switch {
	case c == nil:
		return table.Faint.Cell(table.None)
	case c.Status == wanted:
		return table.Good.Cell(c.String())
	}
	return table.Bad.Cell(c.String())
}

// Page shows the route table, its budget and its drift.
func (v RoutesView) Page() table.Page {
	out := table.Page{Notes: v.Notes, NotSeen: v.NotSeen}
	if v.Network == nil {
		return out
	}
	title := fmt.Sprintf("Routes of network %s (%d), %s", v.Network.Name, v.Network.ID, v.Network.Range)
	t := table.New(title, "DESTINATION", "GATEWAY", "NODE", "+SERVER", "CLASS")
	tones := map[Class]table.Tone{Ours: table.Good, Stale: table.Warn, Ambiguous: table.Bad, Foreign: table.Faint}
	for _, r := range v.Routes {
		t.Add(r.Destination, r.Gateway, table.OrNone(r.Node), table.OrNone(r.Server),
			tones[r.Class].Cell(string(r.Class))).About = nodeOf(r.Node)
	}
	b := v.Budget
	budget := table.New("Budget", ">LIMIT", ">USED", ">RESERVE", ">FREE", ">REFUSED", ">SERVERS ATTACHED")
	budget.Add(b.Limit, b.Used, b.Reserve, table.Toned(b.Free, table.Bad, b.Free == 0),
		table.Toned(b.Full, table.Bad, b.Full > 0), v.Network.Servers)
	out.Tables = []table.Table{t, budget, v.Drift.table()}
	if len(v.Routes) == 0 {
		out.Lines = append(out.Lines, "The table is empty.")
	}
	if v.Drift.Empty() {
		out.Lines = append(out.Lines, "No drift.")
	}
	return out
}

func (d Drift) table() table.Table {
	t := table.New("Drift", "DRIFT", "DESTINATION", "GATEWAY", "NODE", "WHY")
	add := func(what table.Cell, rows []DriftRow) {
		for _, r := range rows {
			t.Add(what, r.Destination, r.Gateway, table.OrNone(r.Node), table.OneLine(r.Why)).About = nodeOf(r.Node)
		}
	}
	add(table.Bad.Cell("missing"), d.Missing)
	add(table.Warn.Cell("extra"), d.Extra)
	return t
}

// nodeOf returns the object of a Node's name, with or without departedMark.
func nodeOf(name string) string {
	if name == "" {
		return ""
	}
	return "Node/" + strings.TrimSuffix(name, departedMark)
}

// Page shows the current facts, followed by the timeline.
func (v Inspection) Page() table.Page {
	facts := table.New(v.Object, "FACT", "VALUE")
	for _, f := range v.Facts {
		facts.Add(f.Name, f.tone.Cell(table.OneLine(f.Value)))
	}
	line := table.New("What happened", "TIME", "SOURCE", "WHAT")
	for _, e := range v.Timeline {
		line.Add(table.Faint.Cell(e.Time.UTC().Format(time.RFC3339)), e.Source,
			table.Toned(table.OneLine(e.What), table.Bad, e.Bad))
	}
	return table.Page{Tables: []table.Table{facts, line}, NotSeen: v.NotSeen}
}

// Join concatenates the texts of values with a separator.
func Join[T fmt.Stringer](values []T, between string) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = v.String()
	}
	return strings.Join(texts, between)
}

// FamiliesText returns a text such as "IPv4 cloud, IPv6 native".
func FamiliesText(families map[string]string) string {
	var texts []string
	for _, family := range slices.Sorted(maps.Keys(families)) {
		texts = append(texts, family+" "+families[family])
	}
	return strings.Join(texts, ", ")
}
