package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/underlay-ccm/underlay/internal/survey"
)

func loadBalancers(v survey.LoadBalancersView) page {
	out := page{notes: v.Notes, notSeen: v.NotSeen}
	t := table{columns: []column{
		{name: "SERVICE"},
		{name: "LOAD BALANCER"},
		{name: "ADDRESSES"},
		{name: "TYPE", wide: true},
		{name: "LOCATION", wide: true},
		{name: "LISTENER"},
		{name: "CHECK", wide: true},
		{name: "TARGET"},
		{name: "HEALTH"},
	}}
	plan := table{title: "Left to do", columns: []column{{name: "SERVICE"}, {name: "OPERATION"}}}
	for _, b := range v.Services {
		t.rows = append(t.rows, balancerRows(b)...)
		for _, op := range b.Plan {
			plan.rows = append(plan.rows, []cell{text(b.Service), {op, warn}})
		}
		for _, note := range b.Notes {
			out.notes = append(out.notes, b.Service+": "+note)
		}
	}
	for _, b := range v.Orphans {
		t.rows = append(t.rows, balancerRows(b)...)
		for _, note := range b.Notes {
			out.notes = append(out.notes, fmt.Sprintf("load balancer %s (%d): %s", b.Name, b.ID, note))
		}
	}
	out.tables = []table{t, plan}
	switch {
	case len(v.Notes) > 0:
	case len(t.rows) == 0:
		out.lines = []string{"No Service asks Underlay for a load balancer."}
	case len(plan.rows) == 0 && len(out.notes) == 0 && len(v.NotSeen) == 0:
		out.lines = []string{"Nothing is left to do."}
	}
	return out
}

// balancerRows are one for each target of each listener, or one. What stands in
// the row above is not repeated.
func balancerRows(b survey.BalancerRow) [][]cell {
	var rows [][]cell
	for _, l := range b.Listeners {
		listener := fmt.Sprintf("%d → %d %s", l.Port, l.DestinationPort, l.Protocol)
		if len(l.Targets) == 0 {
			rows = append(rows, []cell{5: text(listener), 6: text(l.Check), 7: {"no targets", bad}, 8: {}})
		}
		for i, target := range l.Targets {
			name := target.Title()
			if target.Private {
				name += " (private)"
			}
			row := []cell{7: text(name), 8: healthCell(target)}
			if i == 0 {
				row[5], row[6] = text(listener), text(l.Check)
			}
			rows = append(rows, row)
		}
	}
	if len(rows) == 0 {
		rows = [][]cell{{8: {}}}
	}
	first := rows[0]
	first[0] = text(orNone(b.Service))
	if b.Service == "" {
		first[0] = cell{"gone", warn}
	}
	first[1], first[3], first[4] = text(none), text(orNone(b.Type)), text(orNone(b.Location))
	if b.ID != 0 {
		first[1] = text(b.Name + " (" + strconv.FormatInt(b.ID, 10) + ")")
	}
	if b.Shared != "" {
		first[1].text += ", shared as " + b.Shared
	}
	first[2] = text(orNone(addresses(b)))
	return rows
}

// addresses are the load balancer's, or what the Service shows where it is not
// seen.
func addresses(b survey.BalancerRow) string {
	if b.ID != 0 {
		return survey.Join(b.Addresses, ",")
	}
	return strings.Join(b.Published, ",")
}

func healthCell(t survey.TargetRow) cell {
	switch t.Health {
	case "healthy":
		return cell{t.State(), good}
	case "unhealthy":
		return cell{t.State(), bad}
	default:
		return cell{t.State(), warn}
	}
}
