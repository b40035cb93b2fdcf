package survey

import (
	"fmt"
	"math"
	"strings"

	"github.com/underlay-ccm/underlay/internal/table"
)

// Page shows load balancers with their targets, and the pending operations.
func (v LoadBalancersView) Page() table.Page {
	out := table.Page{Notes: v.Notes, NotSeen: v.NotSeen}
	t := table.New("", "SERVICE", "LOAD BALANCER", "ADDRESSES", "+TYPE", "+LOCATION", "LISTENER", "+CHECK",
		"TARGET", "HEALTH")
	plan := table.New("Left to do", "SERVICE", "OPERATION")
	for _, b := range v.Services {
		b.addTo(&t)
		for _, op := range b.Plan {
			plan.Add(b.Service, table.Warn.Cell(op)).About = "Service/" + b.Service
		}
		for _, note := range b.Notes {
			out.Notes = append(out.Notes, b.Service+": "+note)
		}
	}
	for _, b := range v.Orphans {
		b.addTo(&t)
		for _, note := range b.Notes {
			out.Notes = append(out.Notes, fmt.Sprintf("load balancer %s (%d): %s", b.Name, b.ID, note))
		}
	}
	out.Tables = []table.Table{t, plan}
	switch {
	case len(v.Notes) > 0:
	case len(t.Rows) == 0:
		out.Lines = []string{"No Service requests a load balancer of Underlay."}
	case len(plan.Rows) == 0 && len(out.Notes) == 0 && len(v.NotSeen) == 0:
		out.Lines = []string{"Nothing is left to do."}
	}
	return out
}

// addTo adds a row for each target. Cells that would repeat the row above are left empty.
func (b BalancerRow) addTo(t *table.Table) {
	service, about, name, addresses := any(b.Service), "Service/"+b.Service, table.None, strings.Join(b.Published, ",")
	if b.Service == "" {
		service, about = table.Warn.Cell("gone"), ""
	}
	if b.ID != 0 {
		name, addresses = fmt.Sprintf("%s (%d)", b.Name, b.ID), Join(b.Addresses, ",")
	}
	if b.Shared != "" {
		name += ", shared as " + b.Shared
	}
	head := []any{service, name, table.OrNone(addresses), table.OrNone(b.Type), table.OrNone(b.Location)}
	add := func(cells ...any) {
		t.Add(append(head, cells...)...).About = about
		head = []any{"", "", "", "", ""}
	}
	tones := map[string]table.Tone{"healthy": table.Good, "unhealthy": table.Bad, "unknown": table.Warn}
	for _, l := range b.Listeners {
		listener, check := fmt.Sprintf("%d → %d %s", l.Port, l.DestinationPort, l.Protocol), l.Check
		if len(l.Targets) == 0 {
			add(listener, check, table.Bad.Cell("no targets"), "")
		}
		for _, target := range l.Targets {
			title := target.Title()
			if target.Private {
				title += " (private)"
			}
			add(listener, check, title, tones[target.Health].Cell(target.State()))
			listener, check = "", ""
		}
	}
	if len(b.Listeners) == 0 {
		add("", "", "", "")
	}
}

// Page shows the addresses, the Services that lack one, the pools, the Nodes and the routers.
func (v AddressesView) Page() table.Page {
	out := table.Page{Notes: v.Notes, NotSeen: v.NotSeen}
	out.Tables = []table.Table{v.held(), v.waiting(), v.pools(), v.holders(), v.routers()}
	if len(v.Addresses) == 0 && len(v.Pools) > 0 {
		out.Lines = []string{"No Service has an address of the pools."}
	}
	return out
}

func (v AddressesView) held() table.Table {
	t := table.New("", "ADDRESS", "SERVICES", "POOL", "MOVER", "HOLDER", "+REPORTED BY", "STATE", ">EPOCH", "WHY")
	tones := map[string]table.Tone{AddressHeld: table.Good, AddressMoving: table.Warn, AddressNotSeen: table.Faint}
	for _, a := range v.Addresses {
		holder, epoch := table.OrNone(strings.ReplaceAll(a.By(), " ", "")), any(a.Epoch)
		if len(a.Nodes) > 2 {
			holder = fmt.Sprintf("%d nodes", len(a.Nodes))
		}
		if a.Epoch == 0 {
			epoch = table.Faint.Cell(table.None)
		}
		tone, known := tones[a.State]
		t.Add(a.Address, strings.Join(a.Services, ","), table.OrNone(a.Pool), table.OrNone(a.Mover), holder,
			table.OrNone(strings.Join(a.HeldBy, ",")), table.Toned(tone.Cell(a.State), table.Bad, !known),
			epoch, table.Warn.Cell(table.OneLine(strings.Join(a.Notes, "; ")))).About = "Service/" + a.Services[0]
	}
	return t
}

func (v AddressesView) waiting() table.Table {
	t := table.New("Not accepted", "SERVICE", "HAS", "WHY")
	for _, w := range v.Waiting {
		why := table.Bad.Cell(table.OneLine(w.Why()))
		t.Add(w.Service, table.OrNone(Join(w.Has, ",")), why).About = "Service/" + w.Service
	}
	return t
}

func (v AddressesView) pools() table.Table {
	t := table.New("Pools", "POOL", "FAMILY", "+RANGES", "MOVER", "FOR", ">SIZE", ">USED", ">FREE")
	count := func(n uint64) any {
		if n == math.MaxUint64 {
			return "2^64 and more"
		}
		return n
	}
	for _, p := range v.Pools {
		admitted := "all"
		if p.Namespaces != "" {
			admitted = "namespaces " + p.Namespaces
		}
		if p.OnRequest {
			admitted += ", on request"
		}
		t.Add(p.Name, p.Family, strings.Join(p.Ranges, ","), p.Mover, admitted,
			count(p.Size), count(p.Used), table.Toned(count(p.Free), table.Bad, p.Free == 0))
	}
	return t
}

// holders returns all Nodes. Those without a deviation are shown in wide output only.
func (v AddressesView) holders() table.Table {
	t := table.New("Nodes", "NODE", ">IS TO HOLD", ">HOLDS", ">REFUSES", "WHY")
	for _, n := range v.Nodes {
		holds := table.Toned(n.Held, table.Warn, n.Held != n.Assigned)
		refuses := table.Toned(n.Refused, table.Bad, n.Refused > 0)
		if !n.Reports {
			holds = table.Faint.Cell(table.None)
			refuses = holds
		}
		row := t.Add(n.Node, n.Assigned, holds, refuses, table.Warn.Cell(table.OneLine(strings.Join(n.Why, "; "))))
		row.About = "Node/" + n.Node
		row.Wide = n.Assigned == n.Held && n.Refused == 0 && len(n.Why) == 0
	}
	return t
}

func (v AddressesView) routers() table.Table {
	t := table.New("Routers", "ROUTER", "NODE", "SESSION", ">ANNOUNCED")
	for _, r := range v.Routers {
		session := table.Toned(table.Good.Cell(r.Session()), table.Bad, !r.Established)
		t.Add(r.Router, r.Node, session, r.Announced).About = "Node/" + r.Node
	}
	return t
}
