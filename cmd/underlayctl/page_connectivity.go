package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/underlay-ccm/underlay/internal/connectivity"
)

// widest is up to how many nodes there is a matrix; beyond, only what is not open is
// listed.
const widest = 12

var pathTitles = []struct {
	path  connectivity.Path
	title string
}{
	{connectivity.Pod, "Pod to pod"},
	{connectivity.Service, "Pod to Service"},
	{connectivity.NodePort, "Pod to node port"},
	{connectivity.HealthCheck, "Pod to node port for health checks"},
	{connectivity.Outside, "Pod to outside"},
	{connectivity.LoadBalancer, "This machine to load balancers"},
}

func triedPage(v tried) page {
	out := page{notes: v.Notes, notSeen: v.NotSeen}
	for _, p := range pathTitles {
		for _, family := range []int{4, 6} {
			title := fmt.Sprintf("%s, IPv%d", p.title, family)
			of := slices.DeleteFunc(slices.Clone(v.Cells), func(c connectivity.Cell) bool {
				return c.Path != p.path || c.Family != family
			})
			if len(of) == 0 {
				continue
			}
			switch {
			case p.path == connectivity.LoadBalancer:
				out.tables = append(out.tables, fromOne(title, of))
			case len(v.Nodes) > widest:
				out.tables = append(out.tables, listed(title, of))
			default:
				out.tables = append(out.tables, matrix(title, of))
			}
			out.lines = append(out.lines, opened(title, of))
		}
	}
	for _, u := range v.Untried {
		out.lines = append(out.lines, "Not tried: Node "+u.Node+": "+oneLine(u.Reason))
	}
	if len(v.Findings) == 0 && len(v.Results) > 0 {
		out.lines = append(out.lines, "Everything that was tried is open.")
	}
	for _, f := range v.Findings {
		out.lines = append(out.lines, "", upper(f.What)+".", "  Remedy: "+f.Remedy+".")
	}
	if len(v.Doctor) > 0 {
		out.lines = append(out.lines, "", "What doctor finds that may be the cause:")
	}
	for _, d := range v.Doctor {
		out.lines = append(out.lines,
			fmt.Sprintf("  %s %s %s: %s", d.Severity, d.Check, d.Object, oneLine(d.What)),
			"    Remedy: "+oneLine(d.Remedy))
	}
	return out
}

func stateTone(s connectivity.State) tone {
	switch s {
	case connectivity.Open:
		return good
	case connectivity.Slow, connectivity.Lossy:
		return warn
	}
	return bad
}

// matrix has a row for each node that asks and a column for each that is asked.
func matrix(title string, cells []connectivity.Cell) table {
	t := table{title: title, columns: []column{{name: "FROM"}}}
	var to, from []string
	at := map[[2]string]cell{}
	for _, c := range cells {
		to, from = append(to, c.To), append(from, c.From)
		at[[2]string{c.From, c.To}] = cell{c.Text, stateTone(c.State)}
	}
	slices.Sort(to)
	slices.Sort(from)
	to, from = slices.Compact(to), slices.Compact(from)
	for _, name := range to {
		t.columns = append(t.columns, column{name: cmp.Or(name, "SERVICE")})
	}
	for _, f := range from {
		row := []cell{text(f)}
		for _, name := range to {
			c, tried := at[[2]string{f, name}]
			if !tried {
				c = cell{none, faint}
			}
			row = append(row, c)
		}
		t.rows = append(t.rows, row)
	}
	return t
}

// fromOne has a row for each end that one and the same asks.
func fromOne(title string, cells []connectivity.Cell) table {
	t := table{title: title, columns: []column{{name: "SERVICE"}, {name: strings.ToUpper(cells[0].From)}}}
	for _, c := range cells {
		t.rows = append(t.rows, []cell{text(c.To), {c.Text, stateTone(c.State)}})
	}
	return t
}

// listed has a row for each path that is not open.
func listed(title string, cells []connectivity.Cell) table {
	t := table{title: title, columns: []column{{name: "FROM"}, {name: "TO"}, {name: "STATE"}, {name: "WHAT"}}}
	for _, c := range cells {
		if c.State != connectivity.Open {
			t.rows = append(t.rows, []cell{text(c.From), text(orNone(c.To)), {string(c.State), stateTone(c.State)}, text(c.Text)})
		}
	}
	return t
}

func opened(title string, cells []connectivity.Cell) string {
	open := 0
	for _, c := range cells {
		if c.State != connectivity.Closed && c.State != connectivity.Narrow {
			open++
		}
	}
	return fmt.Sprintf("%s: %d of %d open.", title, open, len(cells))
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
