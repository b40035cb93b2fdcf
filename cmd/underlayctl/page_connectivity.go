package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/underlay-ccm/underlay/internal/connectivity"
	"github.com/underlay-ccm/underlay/internal/table"
)

// widest limits the nodes of a matrix. For more nodes, only paths that are not open are listed.
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

// Page shows a matrix for each path and family, and the findings.
func (v tried) Page() table.Page {
	out := table.Page{Notes: v.Notes, NotSeen: v.NotSeen}
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
				out.Tables = append(out.Tables, fromOne(title, of))
			case len(v.Nodes) > widest:
				out.Tables = append(out.Tables, listed(title, of))
			default:
				out.Tables = append(out.Tables, matrix(title, of))
			}
			out.Lines = append(out.Lines, opened(title, of))
		}
	}
	for _, u := range v.Untried {
		out.Lines = append(out.Lines, "Not tried: Node "+u.Node+": "+table.OneLine(u.Reason))
	}
	if len(v.Findings) == 0 && len(v.Results) > 0 {
		out.Lines = append(out.Lines, "Everything that was tried is open.")
	}
	for _, f := range v.Findings {
		out.Lines = append(out.Lines, "", upper(f.What)+".", "  Remedy: "+f.Remedy+".")
	}
	if len(v.Doctor) > 0 {
		out.Lines = append(out.Lines, "", "Findings of doctor that may be the cause:")
	}
	for _, d := range v.Doctor {
		out.Lines = append(out.Lines,
			fmt.Sprintf("  %s %s %s: %s", d.Severity, d.Check, d.Object, table.OneLine(d.What)),
			"    Remedy: "+table.OneLine(d.Remedy))
	}
	return out
}

func stateCell(text string, s connectivity.State) table.Cell {
	tones := map[connectivity.State]table.Tone{
		connectivity.Open: table.Good, connectivity.Slow: table.Warn, connectivity.Lossy: table.Warn,
	}
	return cmp.Or(tones[s], table.Bad).Cell(text)
}

// matrix has a row for each client node and a column for each target.
func matrix(title string, cells []connectivity.Cell) table.Table {
	var to, from []string
	at := map[[2]string]table.Cell{}
	for _, c := range cells {
		to, from = append(to, c.To), append(from, c.From)
		at[[2]string{c.From, c.To}] = stateCell(c.Text, c.State)
	}
	slices.Sort(to)
	slices.Sort(from)
	to, from = slices.Compact(to), slices.Compact(from)
	t := table.New(title, "FROM")
	for _, name := range to {
		t.Columns = append(t.Columns, table.Column{Name: cmp.Or(name, "SERVICE")})
	}
	for _, f := range from {
		row := []any{f}
		for _, name := range to {
			c, tried := at[[2]string{f, name}]
			if !tried {
				c = table.Faint.Cell(table.None)
			}
			row = append(row, c)
		}
		t.Add(row...)
	}
	return t
}

// fromOne has a row for each target of a single client.
func fromOne(title string, cells []connectivity.Cell) table.Table {
	t := table.New(title, "SERVICE", strings.ToUpper(cells[0].From))
	for _, c := range cells {
		t.Add(c.To, stateCell(c.Text, c.State))
	}
	return t
}

// listed has only paths that are not open.
func listed(title string, cells []connectivity.Cell) table.Table {
	t := table.New(title, "FROM", "TO", "STATE", "WHAT")
	for _, c := range cells {
		if c.State != connectivity.Open {
			t.Add(c.From, table.OrNone(c.To), stateCell(string(c.State), c.State), c.Text)
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
