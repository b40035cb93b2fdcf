package webui

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/underlay-ccm/underlay/internal/survey"
)

// RouteTable is that of the cloud's network.
type RouteTable struct {
	// Title is empty where there is no such table; Notes say why.
	Title string `json:"title,omitempty"`
	// Budget is how full it is.
	Budget *Bar    `json:"budget,omitempty"`
	Routes []Route `json:"routes"`
	// Folded is how many more routes stand that lead to their Nodes.
	Folded int      `json:"folded,omitempty"`
	Notes  []string `json:"notes,omitempty"`
}

// Route is one that stands, or that should.
type Route struct {
	ID          string       `json:"id"`
	Destination netip.Prefix `json:"destination"`
	Gateway     string       `json:"gateway,omitempty"`
	// Node is the Machine's ID whose podCIDR it is, if the page shows that.
	Node string `json:"node,omitempty"`
	// Leads says where to: the name of the Node or server.
	Leads string `json:"leads"`
	// Whose is ours, stale, ambiguous, foreign or missing.
	Whose string `json:"whose"`
	Tone  Tone   `json:"tone"`
	Why   string `json:"why,omitempty"`
}

// missing is whose a route is that doesn't stand.
const missing = "missing"

func (v *View) table(s *survey.Snapshot) RouteTable {
	t := RouteTable{Routes: []Route{}}
	view, err := survey.RoutesOf(s)
	t.Notes = view.Notes
	if err != nil {
		t.Notes = append(t.Notes, err.Error())
		return t
	}
	if view.Network == nil {
		return t
	}
	t.Title = fmt.Sprintf("network %s (%d), %s", view.Network.Name, view.Network.ID, view.Network.Range)
	why := map[string]string{}
	for _, d := range view.Drift.Extra {
		why[routeID(d.Destination, d.Gateway.String())] = d.Why
	}
	ours := 0
	for _, r := range view.Routes {
		row := standing(s, &r)
		row.Why = why[row.ID]
		if row.Whose == string(survey.Ours) {
			ours++
		}
		t.Routes = append(t.Routes, row)
	}
	if ours > fold {
		t.Folded = ours
		t.Routes = slices.DeleteFunc(t.Routes, func(r Route) bool { return r.Whose == string(survey.Ours) })
	}
	for _, d := range view.Drift.Missing {
		row := Route{Destination: d.Destination, Leads: d.Node, Whose: missing, Tone: Waits, Why: d.Why}
		if d.Gateway.IsValid() {
			row.Gateway = d.Gateway.String()
		}
		if s.Node(d.Node) != nil {
			row.Node = nodeID(d.Node)
		}
		row.ID = "missing/" + routeID(d.Destination, row.Gateway)
		t.Routes = append(t.Routes, row)
	}
	t.Budget = budgetBar(&view)
	slices.SortStableFunc(t.Routes, func(a, b Route) int { return worstFirst(a.Tone, b.Tone) })
	return t
}

func routeID(destination netip.Prefix, gateway string) string {
	return "route/" + destination.String() + " " + gateway
}

func standing(s *survey.Snapshot, r *survey.RouteRow) Route {
	tones := map[survey.Class]Tone{survey.Ours: OK, survey.Stale: Waits, survey.Ambiguous: Bad, survey.Foreign: Unknown}
	row := Route{
		ID: routeID(r.Destination, r.Gateway.String()), Destination: r.Destination, Gateway: r.Gateway.String(),
		Whose: string(r.Class), Tone: tones[r.Class], Leads: r.Node,
	}
	if s.Node(r.Node) != nil {
		row.Node = nodeID(r.Node)
	}
	switch {
	case r.Server == "":
		row.Leads = strings.TrimSpace(r.Node + " at no server of the network")
	case r.Node == "":
		row.Leads = "server " + r.Server
	case r.Server != r.Node:
		row.Leads = r.Node + " at server " + r.Server
	}
	return row
}

func budgetBar(v *survey.RoutesView) *Bar {
	counts := map[survey.Class]int{}
	for _, r := range v.Routes {
		counts[r.Class]++
	}
	b := v.Budget
	bar := Bar{Name: "Routes", State: fmt.Sprintf("%d of %d", b.Used, b.Limit), Tone: OK}
	total := float64(max(b.Limit, b.Used))
	for _, c := range []survey.Class{survey.Ours, survey.Stale, survey.Ambiguous, survey.Foreign} {
		bar.add(string(c), string(c), uint64(counts[c]), total)
	}
	bar.add("reserve", "reserve", uint64(max(b.Limit-b.Used-b.Free, 0)), total)
	bar.add("free", "free", uint64(max(b.Free, 0)), total)
	switch {
	case b.Full > 0:
		bar.Tone, bar.Note = Bad, fmt.Sprintf("%d routes of Nodes found no room", b.Full)
	case b.Free == 0:
		bar.Tone, bar.Note = Bad, "no more Nodes can be routed"
	case b.Used*5 >= b.Limit*4:
		bar.Tone = Waits
	}
	return &bar
}
