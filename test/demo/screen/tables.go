package screen

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/underlay-ccm/underlay/test/demo/state"
)

// Tables are printed at the end of the demo. Ages are counted until now.
func (p Painter) Tables(
	w *state.State, t *state.Timeline, machines []string, now time.Time,
) string {
	return p.milestones(t, machines) + p.nodes(w, now) + p.budget(w.Budget()) + p.balancers(w) +
		p.requests(w) + p.writes(w)
}

func (p Painter) milestones(t *state.Timeline, machines []string) string {
	out := table{title: "Since joining", head: append([]string{"milestone"}, machines...)}
	for _, what := range state.Milestones() {
		row := []string{what}
		for _, m := range machines {
			since, ok := t.Reached(m, what)
			if !ok {
				row = append(row, "–")
				continue
			}
			row = append(row, Since(since))
		}
		out.rows = append(out.rows, row)
	}
	return p.table(out)
}

func (p Painter) nodes(w *state.State, now time.Time) string {
	out := table{title: "Nodes", head: []string{"node", "IPv4 podCIDR", "IPv6 podCIDR", "route via", "provider ID", "age"}}
	for _, n := range w.SortedNodes() {
		route, via := w.RouteOf(n)
		gateway := "–"
		if via {
			gateway = route.Via.String()
		}
		out.rows = append(out.rows, []string{
			n.Name, prefix(n.PodCIDR4()), prefix(n.PodCIDR6()), gateway, orDash(n.ProviderID),
			now.Sub(n.Created).Round(time.Second).String(),
		})
	}
	return p.table(out)
}

func prefix(p netip.Prefix) string {
	if !p.IsValid() {
		return "–"
	}
	return p.String()
}

// barWidth is the width of the whole route table in characters.
const barWidth = 50

func (p Painter) budget(b state.Budget) string {
	return p.table(table{
		title: "Routes of the network",
		head:  []string{"limit", "ours", "foreign", "free"},
		rows: [][]string{
			{strconv.Itoa(b.Limit), strconv.Itoa(b.Ours), strconv.Itoa(b.Foreign), strconv.Itoa(b.Free())},
		},
	}) + "  " + p.bar(b) + "\n"
}

// bar draws each share with at least one character, so that none is missed.
func (p Painter) bar(b state.Budget) string {
	cells := func(count int) int {
		if count <= 0 || b.Limit <= 0 {
			return 0
		}
		return max(1, count*barWidth/b.Limit)
	}
	ours, foreign := cells(b.Ours), cells(b.Foreign)
	free := max(0, barWidth-ours-foreign)
	return p.paint(green, strings.Repeat("█", ours)) + p.paint(yellow, strings.Repeat("▓", foreign)) + p.paint(dim, strings.Repeat("░", free))
}

func (p Painter) balancers(w *state.State) string {
	out := table{title: "Load balancer", head: []string{"service", "address", "listen port", "health check", "target", "health"}}
	for _, v := range w.Views() {
		address := "–"
		if len(v.Service.Addresses) > 0 {
			address = v.Service.Addresses[0]
		}
		first := []string{v.Service.Name, address, "–", "–"}
		if len(v.Balancer.Listeners) > 0 {
			l := v.Balancer.Listeners[0]
			first[2] = fmt.Sprintf("%d → %d", l.Port, l.NodePort)
			first[3] = fmt.Sprintf("%s :%d", l.Check, l.Check.Port)
		}
		rows := [][]string{append(first, "–", "–")}
		for i, t := range v.Targets {
			if i > 0 {
				rows = append(rows, []string{"", "", "", "", "", ""})
			}
			rows[i][4], rows[i][5] = t.Name, orDash(t.Health)
		}
		out.rows = append(out.rows, rows...)
	}
	return p.table(out)
}

func (p Painter) requests(w *state.State) string {
	out := table{title: "Requests to the cloud", head: []string{"method", "path", "requests", "not found", "refused"}}
	total := state.RequestCount{Method: "all"}
	row := func(c state.RequestCount) []string {
		return []string{
			c.Method, c.Path, strconv.Itoa(c.Count), strconv.Itoa(c.NotFound), strconv.Itoa(c.Refused),
		}
	}
	for _, c := range w.Requests {
		out.rows = append(out.rows, row(c))
		total.Count += c.Count
		total.NotFound += c.NotFound
		total.Refused += c.Refused
	}
	out.rows = append(out.rows, row(total))
	return p.table(out)
}

func (p Painter) writes(w *state.State) string {
	out := table{title: "Writes to Nodes, from the audit log", head: []string{"node", "node IPAM", "routes", "sum"}}
	for _, c := range w.Writes {
		out.rows = append(out.rows, []string{
			c.Node, strconv.Itoa(c.IPAM), strconv.Itoa(c.Routes), strconv.Itoa(c.Sum()),
		})
	}
	return p.table(out)
}
