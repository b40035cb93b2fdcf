package main

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/underlay-ccm/underlay/internal/measure"
)

// planPage is what is said before anything is made.
func planPage(v planView) page {
	bill := table{
		title: fmt.Sprintf("%s at %s, location %s, within %s, for at most %s %s",
			facts(len(v.Facts)), v.Endpoint, v.Location, minutes(v.Minutes), v.Bill.Total, v.Bill.Currency),
		columns: []column{
			{name: "IS MADE"}, {name: "COUNT", right: true}, {name: "PRICE", right: true}, {name: "AT MOST", right: true},
		},
	}
	for _, i := range v.Bill.Items {
		each := i.Each.Hourly.Fine() + " an hour"
		switch {
		case i.ByMonth:
			each = i.Each.Monthly.Fine() + " a month"
		case i.Cost == 0:
			each = "free"
		}
		bill.rows = append(bill.rows, []cell{
			text(strings.TrimSpace(i.What)), text(strconv.Itoa(i.Count)), {each, faint}, text(i.Cost.Fine()),
		})
	}
	out := page{tables: []table{bill}}
	if len(bill.rows) == 0 {
		out = page{lines: []string{
			fmt.Sprintf("%s at %s, location %s, within %s. Nothing is made for that, and it costs nothing.",
				facts(len(v.Facts)), v.Endpoint, v.Location, minutes(v.Minutes)),
		}}
	} else {
		out.lines = append(out.lines,
			fmt.Sprintf("Gross, as for %d started hours; --max-cost allows %s. Everything is removed at the end.", v.Bill.Hours, v.Ceiling))
	}
	out.lines = append(out.lines, "What the project has stays as it is: "+v.Existing.String()+".")
	out.lines = append(out.lines, measure.Touched(v.Facts)...)
	for _, l := range v.Leftovers {
		out.lines = append(out.lines, l.said())
	}
	if v.simulated {
		out.lines = append(out.lines, "hcloud-sim runs no programs in its servers: for it, add --api-only.")
	}
	out.lines = append(out.lines, notTried(v.LeftOut, v.named)...)
	return out
}

func facts(n int) string {
	if n == 1 {
		return "1 fact"
	}
	return fmt.Sprintf("%d facts", n)
}

// those are the names of some facts, or of many how many there are; JSON has all of them.
func those(all []measure.FactID) string {
	if len(all) > 3 {
		return facts(len(all))
	}
	var names []string
	for _, id := range all {
		names = append(names, string(id))
	}
	return strings.Join(names, " and ")
}

// minutes is a time limit as a person wrote it.
func minutes(m float64) string {
	s := strings.TrimSuffix(time.Duration(m*float64(time.Minute)).String(), "0s")
	if strings.HasSuffix(s, "h0m") {
		return strings.TrimSuffix(s, "0m")
	}
	return s
}

// notTried has a line for each reason that somebody can do something about, and for the others of
// facts that were named.
func notTried(left []measure.LeftOut, named bool) (lines []string) {
	for _, r := range measure.Reasons(left) {
		if f, _ := measure.Of(r.Facts[0]); f.Needs.Impossible != "" && !named {
			continue
		}
		lines = append(lines, "Not tried: "+those(r.Facts)+", "+oneLine(r.Why)+".")
	}
	return lines
}

func verdictTone(v measure.Verdict) tone {
	switch v {
	case measure.AsAssumed:
		return good
	case measure.Differs:
		return warn
	case measure.NotFoundOut:
		return bad
	}
	return plain
}

// found is the line of a fact as it comes.
func (p painter) found(n, all int, r measure.Row) string {
	width := len(strconv.Itoa(all))
	seen := p.paint(verdictTone(r.Verdict), cmp.Or(r.Seen, string(r.Verdict)))
	if r.Verdict == measure.Differs {
		seen += p.paint(faint, " (assumed: "+r.Assumed+")")
	}
	return fmt.Sprintf("%*d/%d  %-18s %s", width, n, all, r.Fact, seen)
}

// longest is from how many runes on a cell is short in the table, so that it fits into 80 columns,
// and longestWide in that of -o wide. JSON has all of it.
const longest, longestWide = 21, 40

func short(s string, longest int) string {
	if runes := []rune(s); len(runes) > longest {
		return string(runes[:longest-1]) + "…"
	}
	return s
}

// resultPage is what was found out. Texts that are too long for a cell stand below the table.
func resultPage(v resultView, profile, report string, wide bool) page {
	t := table{columns: []column{
		{name: "FACT"}, {name: "ASSUMED"}, {name: "SEEN"}, {name: "VERDICT"}, {name: "QUESTION", wide: true},
	}}
	most := longest
	if wide {
		most = longestWide
	}
	var below []string
	var unsure []measure.LeftOut
	for _, r := range v.Rows {
		t.rows = append(t.rows, []cell{
			text(string(r.Fact)),
			{orNone(short(r.Assumed, most)), faint},
			text(orNone(short(r.Seen, most))),
			{string(r.Verdict), verdictTone(r.Verdict)},
			text(r.Question),
		})
		if short(r.Seen, most) != r.Seen && (wide || r.Verdict == measure.Differs) {
			below = append(below, string(r.Fact)+": "+r.Seen)
		}
		if wide && r.Note != "" {
			below = append(below, string(r.Fact)+": "+oneLine(r.Note))
		}
		if r.Why != "" {
			unsure = append(unsure, measure.LeftOut{Fact: r.Fact, Why: r.Why})
		}
	}
	for _, r := range measure.Reasons(unsure) {
		below = append(below, those(r.Facts)+": "+oneLine(r.Why))
	}
	if len(below) > 0 {
		below = append(below, "")
	}
	below = append(below, measure.Summary(v.Rows))
	if profile != "" {
		below = append(below, "Profile: "+profile+", for hcloud-sim --profile "+profile)
	}
	if report != "" {
		below = append(below, "Report: "+report)
	}
	return page{tables: []table{t}, lines: below}
}

// factsPage lists what can be found out.
func factsPage(all []factView) page {
	t := table{columns: []column{{name: "FACT"}, {name: "QUESTION"}, {name: "ASSUMED"}, {name: "TAKES"}}}
	for _, f := range all {
		t.rows = append(t.rows, []cell{text(string(f.Fact)), text(f.Question), text(orNone(short(f.Assumed, longestWide))), {f.Takes, faint}})
	}
	return page{tables: []table{t}}
}

// leftoverTable lists what runs left.
func leftoverTable(left []leftover, now time.Time) table {
	t := table{columns: []column{{name: "RUN"}, {name: "AGE"}, {name: "LEFT"}, {name: "MAY BE AT WORK"}}}
	for _, l := range left {
		atWork := cell{"no", faint}
		if l.mayBeAtWork(now) {
			atWork = cell{"yes", warn}
		}
		t.rows = append(t.rows, []cell{text(l.Run), text(since(l.since(), now)), text(made(l.Things, l.SSHKeys, l.vSwitches)), atWork})
	}
	return t
}

// made is what a run has made, in words. A key to log in comes with its first server.
func made(t measure.Things, keys, vSwitches int) string {
	var parts []string
	if t != (measure.Things{}) || keys+vSwitches == 0 {
		parts = append(parts, t.String())
	}
	for _, thing := range []struct {
		n    int
		what string
	}{{keys, "SSH key"}, {vSwitches, "vSwitch"}} {
		switch {
		case thing.n == 1:
			parts = append(parts, "1 "+thing.what)
		case thing.n > 1:
			parts = append(parts, fmt.Sprintf("%d %ss", thing.n, strings.Replace(thing.what, "vSwitch", "vSwitche", 1)))
		}
	}
	return strings.Join(parts, ", ")
}
