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
}

// Page shows a matrix for each path and family, and the findings.
func (v tried) Page() table.Page {
	out := table.Page{Notes: v.Notes}
	for _, p := range pathTitles {
		for _, family := range []int{4, 6} {
			title := fmt.Sprintf("%s, IPv%d", p.title, family)
			open := 0
			var of []connectivity.Cell
			for _, c := range v.Cells {
				if c.Path != p.path || c.Family != family {
					continue
				}
				if of = append(of, c); c.State == connectivity.Open {
					open++
				}
			}
			if len(of) == 0 {
				continue
			}
			draw := matrix
			if len(v.Nodes) > widest {
				draw = listed
			}
			out.Tables = append(out.Tables, draw(title, of))
			out.Lines = append(out.Lines, fmt.Sprintf("%s: %d of %d open.", title, open, len(of)))
		}
	}
	for _, u := range v.Untried {
		out.Lines = append(out.Lines, "Not tried: Node "+u.Node+": "+table.OneLine(u.Reason))
	}
	if len(v.Findings) == 0 && len(v.Cells) > 0 {
		out.Lines = append(out.Lines, "Everything that was tried is open.")
	}
	for _, f := range v.Findings {
		out.Lines = append(out.Lines, "", strings.ToUpper(f.What[:1])+f.What[1:]+".",
			"  Remedy: "+f.Remedy+".")
	}
	if len(v.Findings) > 0 {
		out.Lines = append(out.Lines, "", "underlayctl doctor may find the cause.")
	}
	return out
}

func stateCell(text string, s connectivity.State) table.Cell {
	return table.Toned(table.Good.Cell(text), table.Bad, s != connectivity.Open)
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
	t := table.New("", title, "FROM")
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

// listed has only paths that are not open.
func listed(title string, cells []connectivity.Cell) table.Table {
	t := table.New("", title, "FROM", "TO", "STATE", "WHAT")
	for _, c := range cells {
		if c.State != connectivity.Open {
			t.Add(c.From, table.OrNone(c.To), stateCell(string(c.State), c.State), c.Text)
		}
	}
	return t
}
