package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/underlay-ccm/underlay/internal/doctor"
	"github.com/underlay-ccm/underlay/internal/survey"
)

const none = "–"

func orNone(s string) string {
	if s == "" {
		return none
	}
	return s
}

func pools(v survey.PoolsView) page {
	t := table{columns: []column{
		{name: "NAME"},
		{name: "CIDR"},
		{name: "SOURCE"},
		{name: "MASK"},
		{name: "STATE"},
		{name: "CAPACITY", right: true},
		{name: "FREE", right: true},
		{name: "USED", right: true},
		{name: "QUARANTINED", right: true},
		{name: "FOREIGN", right: true},
		{name: "EXCLUDED", right: true, wide: true},
	}}
	number := func(n uint64) cell { return text(strconv.FormatUint(n, 10)) }
	for _, p := range v.Pools {
		cidr, capacity, free := text(p.CIDR.String()), number(p.Capacity), number(p.Free)
		if p.Unlimited {
			cidr, capacity, free = text("each server's own"), text("unlimited"), text("unlimited")
		} else if p.Free == 0 && p.State == "active" {
			free.tone = bad
		}
		state := text(p.State)
		if p.State != "active" {
			state.tone = warn
		}
		t.rows = append(t.rows, []cell{
			text(p.Name), cidr, text(p.Source), text("/" + strconv.Itoa(p.Mask)), state,
			capacity, free, number(p.Used), number(p.Quarantined), number(p.Foreign), number(p.Excluded),
		})
	}
	out := page{tables: []table{t}, notes: append(v.Removed, v.Notes...), notSeen: v.NotSeen}
	if v.Room != nil {
		out.lines = append(out.lines, fmt.Sprintf("Room for %d more Nodes.", *v.Room))
	}
	return out
}

func nodes(v survey.NodesView) page {
	t := table{columns: []column{
		{name: "NODE"},
		{name: "PODCIDRS"},
		{name: "ROUTE"},
		{name: "VIA"},
		{name: "FAMILIES"},
		{name: "NETWORKUNAVAILABLE"},
		{name: "PODCIDRSALLOCATED"},
		{name: "PEERSREACHABLE"},
		{name: "AGE", wide: true},
		{name: "PROVIDER ID", wide: true},
		{name: "SERVER", wide: true},
		{name: "WHY"},
	}}
	for _, n := range v.Nodes {
		via := none
		if n.Route.Via.IsValid() {
			via = n.Route.Via.String()
		}
		t.rows = append(t.rows, []cell{
			text(n.Name), text(orNone(survey.Join(n.PodCIDRs, ","))), routeCell(n.Route), text(via),
			text(orNone(survey.FamiliesText(n.Families))),
			conditionCell(n.NetworkUnavailable, "False"), conditionCell(n.PodCIDRsAllocated, "True"), conditionCell(n.PeersReachable, "True"),
			text(duration.HumanDuration(n.Age)), text(orNone(n.ProviderID)), text(orNone(n.Server)),
			{strings.Join(n.Why, "; "), warn},
		})
	}
	out := page{tables: []table{t}, notSeen: v.NotSeen}
	if len(v.Nodes) == 0 {
		out.lines = []string{"The cluster has no Nodes."}
	}
	return out
}

func routeCell(r survey.RouteState) cell {
	switch r.State {
	case survey.RouteStands:
		return cell{r.State, good}
	case survey.RouteMissing, survey.RouteStale, survey.RouteNoPodCIDR:
		return cell{r.State, bad}
	default:
		return cell{r.State, faint}
	}
}

func conditionCell(c *survey.ConditionRow, wanted string) cell {
	switch {
	case c == nil:
		return cell{none, faint}
	case c.Status == wanted:
		return cell{c.String(), good}
	default:
		return cell{c.String(), bad}
	}
}

func routeTables(v survey.RoutesView) page {
	out := page{notes: v.Notes, notSeen: v.NotSeen}
	if v.Network == nil {
		return out
	}
	t := table{title: fmt.Sprintf("Routes of network %s (%d), %s", v.Network.Name, v.Network.ID, v.Network.Range), columns: []column{
		{name: "DESTINATION"}, {name: "GATEWAY"}, {name: "NODE"}, {name: "SERVER", wide: true}, {name: "CLASS"},
	}}
	tones := map[survey.Class]tone{survey.Ours: good, survey.Stale: warn, survey.Ambiguous: bad, survey.Foreign: faint}
	for _, r := range v.Routes {
		t.rows = append(t.rows, []cell{
			text(r.Destination.String()), text(r.Gateway.String()), text(orNone(r.Node)), text(orNone(r.Server)), {string(r.Class), tones[r.Class]},
		})
	}
	b := v.Budget
	right := func(name string) column { return column{name: name, right: true} }
	budget := table{title: "Budget", columns: []column{right("LIMIT"), right("USED"), right("RESERVE"), right("FREE"), right("REFUSED"), right("SERVERS ATTACHED")}}
	row := []cell{}
	for _, n := range []int{b.Limit, b.Used, b.Reserve, b.Free, b.Full, v.Network.Servers} {
		row = append(row, text(strconv.Itoa(n)))
	}
	if b.Free == 0 {
		row[3].tone = bad
	}
	if b.Full > 0 {
		row[4].tone = bad
	}
	budget.rows = [][]cell{row}
	out.tables = []table{t, budget, driftTable(v.Drift)}
	if len(v.Routes) == 0 {
		out.lines = append(out.lines, "The table is empty.")
	}
	if v.Drift.Empty() {
		out.lines = append(out.lines, "No drift.")
	}
	return out
}

func driftTable(d survey.Drift) table {
	t := table{title: "Drift", columns: []column{{name: "DRIFT"}, {name: "DESTINATION"}, {name: "GATEWAY"}, {name: "NODE"}, {name: "WHY"}}}
	add := func(what cell, rows []survey.DriftRow) {
		for _, r := range rows {
			gateway := none
			if r.Gateway.IsValid() {
				gateway = r.Gateway.String()
			}
			t.rows = append(t.rows, []cell{what, text(r.Destination.String()), text(gateway), text(orNone(r.Node)), text(oneLine(r.Why))})
		}
	}
	add(cell{"missing", bad}, d.Missing)
	add(cell{"extra", warn}, d.Extra)
	return t
}

// diagnosed has each remedy below what it is for, or with -o wide beside it.
func diagnosed(d diagnosis) page {
	t := table{columns: []column{{name: "SEVERITY"}, {name: "CHECK"}, {name: "OBJECT"}, {name: "FOUND"}, {name: "REMEDY", wide: true}}}
	tones := map[doctor.Severity]tone{doctor.Error: bad, doctor.Warning: warn, doctor.Info: faint}
	blind := len(d.NotSeen) > 0
	for _, f := range grouped(d.Findings) {
		blind = blind || f.Severity == doctor.Info
		t.rows = append(t.rows, []cell{
			{string(f.Severity), tones[f.Severity]}, text(f.Check), text(orNone(f.Object)), text(oneLine(f.What)), text(oneLine(f.Remedy)),
		})
		if f.Remedy != "" {
			t.rows = append(t.rows, []cell{3: {"→ " + oneLine(f.Remedy), faint}, 4: {}})
		}
	}
	out := page{tables: []table{t}, wide: []table{beside(t)}, notSeen: d.NotSeen}
	switch {
	case severityCode(d.Findings) > 0:
	case blind:
		out.lines = []string{"Nothing is wrong with what could be seen."}
	default:
		out.lines = []string{fmt.Sprintf("Nothing is wrong: all %d checks pass.", doctor.Checks())}
	}
	return out
}

// grouped has one row for all checks that were not made for the same cause, at
// the place of the first. A check of its own keeps its own row.
func grouped(all []doctor.Finding) []doctor.Finding {
	checks := map[string][]string{}
	for _, f := range all {
		if f.Severity == doctor.Info {
			checks[f.What] = append(checks[f.What], f.Check)
		}
	}
	var out []doctor.Finding
	for _, f := range all {
		same := checks[f.What]
		if f.Severity == doctor.Info && len(same) > 1 {
			if f.Check != same[0] {
				continue
			}
			f.Check, f.Object = fmt.Sprintf("%d checks", len(same)), ""
			f.Remedy = "give underlayctl what it needs to see it; -o json names each check, and how to make it by hand"
		}
		out = append(out, f)
	}
	return out
}

// beside is a table without the lines that only go on from the one above.
func beside(t table) table {
	t.rows = slices.DeleteFunc(slices.Clone(t.rows), func(row []cell) bool { return row[0].text == "" })
	return t
}

func inspection(v survey.Inspection) page {
	facts := table{title: v.Object, columns: []column{{name: "FACT"}, {name: "VALUE"}}}
	for _, f := range v.Facts {
		value := text(oneLine(f.Value))
		if f.Name == "why" || f.Name == "left to do" {
			value.tone = warn
		}
		facts.rows = append(facts.rows, []cell{text(f.Name), value})
	}
	line := table{title: "What happened", columns: []column{{name: "TIME"}, {name: "SOURCE"}, {name: "WHAT"}}}
	for _, e := range v.Timeline {
		what := text(oneLine(e.What))
		if e.Bad {
			what.tone = bad
		}
		line.rows = append(line.rows, []cell{{e.Time.UTC().Format(time.RFC3339), faint}, text(e.Source), what})
	}
	return page{tables: []table{facts, line}, notSeen: v.NotSeen}
}
