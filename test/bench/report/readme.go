package main

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// The text between these marks in the README is generated from the records: the rows of the table
// with the first cell of a generated row, and the sentences. The rest is kept.
const (
	beginMark, endMark = "<!-- begin measured -->", "<!-- end measured -->"
)

// Names of contenders in the records, beside Underlay's.
const (
	hetzner   = "Hetzner CCM 1.35"
	allocator = "kube-controller-manager"
)

// measured is the README with the figures of the records. Text about missing records is kept.
func measured(text string, all []section) (string, error) {
	parts := []func(string) (string, error){
		func(string) (string, error) { return when(all), nil },
		func(table string) (string, error) { return withRows(table, rows(all)) },
		func(old string) (string, error) {
			if s := fullSpeed(all); s != "" {
				return s, nil
			}
			return old, nil
		},
	}
	var out strings.Builder
	for i, part := range parts {
		before, rest, began := strings.Cut(text, beginMark)
		inner, after, ended := strings.Cut(rest, endMark)
		if !began || !ended {
			return "", fmt.Errorf("part %d of %d between %q and %q is missing", i+1, len(parts), beginMark, endMark)
		}
		inner, err := part(inner)
		if err != nil {
			return "", err
		}
		out.WriteString(before + beginMark + inner + endMark)
		text = after
	}
	if strings.Contains(text, beginMark) {
		return "", fmt.Errorf("%q comes more than %d times", beginMark, len(parts))
	}
	return out.String() + text, nil
}

// when is the sentence above the table.
func when(all []section) string {
	first, last := "", ""
	cores := map[int]bool{}
	for _, s := range all {
		date := s.machine.Date
		if first == "" || date < first {
			first = date
		}
		last = max(last, date)
		cores[s.machine.Cores] = true
	}
	month := func(date string) string {
		t, err := time.Parse(time.DateOnly, date)
		if err != nil {
			return date
		}
		return t.Format("January 2006")
	}
	span := month(last)
	if month(first) != span {
		span = month(first) + " to " + span
	}
	machines := "different machines"
	if len(cores) == 1 {
		for n := range cores {
			machines = fmt.Sprintf("%d cores", n)
		}
	}
	exceptions := "the requests of the Hetzner CCM, which were measured in 2026 at the same pace of the API"
	if fullSpeed(all) == "" {
		exceptions += ", and the podCIDRs, which `make bench-ipam` printed earlier"
	}
	return fmt.Sprintf("The figures were measured in %s on %s against simulated APIs, by `make bench-all`, but for %s. [All figures, and what each means](%s).", span, machines, exceptions, page)
}

// A line is a row of the README's table: its first cell, and the others, empty if a figure isn't
// recorded.
type line struct {
	key   string
	cells []string
}

// rows are those of the table that have figures: Underlay, with an overlay, with the peer's routes.
func rows(all []section) []line {
	const (
		joining     = "100 Nodes join at once, actions of 300 ms"
		rest        = "An hour at rest, 100 Nodes"
		many        = "5,000 Nodes join, no client limit"
		byDefault   = "Nodes join, each allocator's own client limit"
		newBalancer = "a new load balancer: 5 nodes, 2 ports, private network"
	)
	l := func(key string, format string, overlay bool, of ...figure) line {
		out := line{key: key}
		texts := make([]string, 2)
		for i, contender := range []string{ours, ""} {
			var values []any
			for _, f := range of {
				who := contender
				if who == "" {
					who = f.peer
				}
				v, has := value(all, f.subject, f.scenario, f.quantity, who)
				if !has {
					return out
				}
				values = append(values, round(v))
			}
			texts[i] = fmt.Sprintf(format, values...)
		}
		out.cells = []string{texts[0], "–", texts[1]}
		if overlay {
			out.cells[1] = texts[1]
		}
		return out
	}
	return []line{
		l("new load balancer, 5 nodes, 2 ports", "%s requests", true, figure{"lb", "Requests to the cloud", newBalancer, hetzner}),
		l("100 nodes join, routes", "%s requests, %s s", false,
			figure{"routes", joining, "requests", hetzner}, figure{"routes", joining, "until all are reachable", hetzner}),
		l("at rest, 100 nodes", "%s requests an hour", true, figure{"routes", rest, "requests", hetzner}),
		l("5,000 Nodes get podCIDRs", "%s a second by default, %s at most", true,
			figure{"ipam", byDefault, "rate", allocator}, figure{"ipam", many, "rate", allocator}),
	}
}

// A figure identifies the value of a cell, and the contender beside Underlay.
type figure struct{ subject, scenario, quantity, peer string }

// round is for readers who compare: no decimals.
func round(v float64) string { return number(math.Round(v)) }

// withRows replaces the rows of a table by those with the same first cell.
func withRows(table string, rows []line) (string, error) {
	lines := strings.Split(table, "\n")
	for _, r := range rows {
		found := false
		for i, old := range lines {
			if strings.HasPrefix(old, "| "+r.key+" |") {
				found = true
				if r.cells != nil {
					lines[i] = fmt.Sprintf("| %s | %s |", r.key, strings.Join(r.cells, " | "))
				}
			}
		}
		if !found {
			return "", fmt.Errorf("the table has no row %q: add it, or take it out of the program that writes it", r.key)
		}
	}
	return strings.Join(lines, "\n"), nil
}

// fullSpeed is the sentence about the allocators at full speed; empty if it wasn't measured.
func fullSpeed(all []section) string {
	var beside []string
	for _, scenario := range []string{"5,000 Nodes join, no client limit", "5,000 Nodes wait for the allocator, no client limit"} {
		our, has := value(all, "ipam", scenario, "rate", ours)
		their, hasToo := value(all, "ipam", scenario, "rate", allocator)
		if !has || !hasToo {
			return ""
		}
		switch percent := int(math.Round(100 * (our/their - 1))); {
		case percent > 0:
			beside = append(beside, fmt.Sprintf("%d %% faster than", percent))
		case percent < 0:
			beside = append(beside, fmt.Sprintf("%d %% slower than", -percent))
		default:
			beside = append(beside, "as fast as")
		}
	}
	return fmt.Sprintf("Without client-side rate limits our allocator, which records each podCIDR first, is %s kube-controller-manager's while Nodes join, and %s it with a backlog of Nodes that have waited.", beside[0], beside[1])
}
