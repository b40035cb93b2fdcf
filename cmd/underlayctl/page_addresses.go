package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/underlay-ccm/underlay/internal/survey"
)

func addressPages(v survey.AddressesView) page {
	out := page{notes: v.Notes, notSeen: v.NotSeen}
	waiting, routers := waitingTable(v.Waiting), routerTable(v.Routers)
	held, pools := addressTable(v.Addresses), addressPoolTable(v.Pools)
	concerned := holderTable(v.Nodes, func(n survey.AddressNodeRow) bool {
		return n.Assigned != n.Held || n.Refused > 0 || len(n.Why) > 0
	})
	everyone := holderTable(v.Nodes, func(survey.AddressNodeRow) bool { return true })
	out.tables = []table{held, waiting, pools, concerned, routers}
	out.wide = []table{held, waiting, pools, everyone, routers}
	if len(v.Addresses) == 0 && len(v.Pools) > 0 {
		out.lines = []string{"No Service has an address of the pools."}
	}
	return out
}

func addressTable(rows []survey.AddressRow) table {
	t := table{columns: []column{
		{name: "ADDRESS"},
		{name: "SERVICES"},
		{name: "POOL"},
		{name: "MOVER"},
		{name: "HOLDER"},
		{name: "REPORTED BY", wide: true},
		{name: "STATE"},
		{name: "EPOCH", right: true},
		{name: "WHY"},
	}}
	for _, a := range rows {
		t.rows = append(t.rows, []cell{
			text(a.Address.String()), text(strings.Join(a.Services, ",")), text(orNone(a.Pool)), text(orNone(a.Mover)),
			text(holder(a)), text(orNone(strings.Join(a.HeldBy, ","))), addressState(a), epoch(a),
			{oneLine(strings.Join(a.Notes, "; ")), warn},
		})
	}
	return t
}

// holder names who is to hold an address, and counts many.
func holder(a survey.AddressRow) string {
	const named = 2
	if len(a.Nodes) > named {
		return fmt.Sprintf("%d nodes", len(a.Nodes))
	}
	return orNone(strings.ReplaceAll(a.By(), " ", ""))
}

func epoch(a survey.AddressRow) cell {
	if a.Epoch == 0 {
		return cell{none, faint}
	}
	return text(strconv.FormatUint(a.Epoch, 10))
}

func addressState(a survey.AddressRow) cell {
	switch a.State {
	case survey.AddressHeld:
		return cell{a.State, good}
	case survey.AddressMoving:
		return cell{a.State, warn}
	case survey.AddressNotSeen:
		return cell{a.State, faint}
	default:
		return cell{a.State, bad}
	}
}

func waitingTable(rows []survey.WaitingRow) table {
	t := table{title: "Not accepted", columns: []column{{name: "SERVICE"}, {name: "HAS"}, {name: "WHY"}}}
	for _, w := range rows {
		t.rows = append(t.rows, []cell{text(w.Service), text(orNone(survey.Join(w.Has, ","))), {oneLine(w.Why()), bad}})
	}
	return t
}

func addressPoolTable(rows []survey.AddressPoolRow) table {
	t := table{title: "Pools", columns: []column{
		{name: "POOL"},
		{name: "FAMILY"},
		{name: "RANGES", wide: true},
		{name: "MOVER"},
		{name: "FOR"},
		{name: "SIZE", right: true},
		{name: "USED", right: true},
		{name: "FREE", right: true},
	}}
	for _, p := range rows {
		free := count(p.Free)
		if p.Free == 0 {
			free.tone = bad
		}
		t.rows = append(t.rows, []cell{
			text(p.Name), text(p.Family), text(strings.Join(p.Ranges, ",")), text(p.Mover), text(admitted(p)), count(p.Size), count(p.Used), free,
		})
	}
	return t
}

// admitted is which Services get addresses of a pool.
func admitted(p survey.AddressPoolRow) string {
	who := "all"
	if p.Namespaces != "" {
		who = "namespaces " + p.Namespaces
	}
	if p.OnRequest {
		who += ", on request"
	}
	return who
}

// count is a number, of which the largest stands for all above it.
func count(n uint64) cell {
	if n == math.MaxUint64 {
		return text("2^64 and more")
	}
	return text(strconv.FormatUint(n, 10))
}

func holderTable(rows []survey.AddressNodeRow, shown func(survey.AddressNodeRow) bool) table {
	t := table{title: "Nodes", columns: []column{
		{name: "NODE"},
		{name: "IS TO HOLD", right: true},
		{name: "HOLDS", right: true},
		{name: "REFUSES", right: true},
		{name: "WHY"},
	}}
	for _, n := range rows {
		if !shown(n) {
			continue
		}
		holds, refuses := text(strconv.Itoa(n.Held)), text(strconv.Itoa(n.Refused))
		switch {
		case !n.Reports:
			holds, refuses = cell{none, faint}, cell{none, faint}
		case n.Held != n.Assigned:
			holds.tone = warn
		}
		if n.Refused > 0 {
			refuses.tone = bad
		}
		t.rows = append(t.rows, []cell{text(n.Node), text(strconv.Itoa(n.Assigned)), holds, refuses, {oneLine(strings.Join(n.Why, "; ")), warn}})
	}
	return t
}

func routerTable(rows []survey.RouterRow) table {
	t := table{title: "Routers", columns: []column{{name: "ROUTER"}, {name: "NODE"}, {name: "SESSION"}, {name: "ANNOUNCED", right: true}}}
	for _, r := range rows {
		session := cell{r.Session(), bad}
		if r.Established {
			session.tone = good
		}
		t.rows = append(t.rows, []cell{text(r.Router), text(r.Node), session, text(strconv.Itoa(r.Announced))})
	}
	return t
}
