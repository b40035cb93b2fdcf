package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/underlay-ccm/underlay/internal/measure"
)

// oneLine is a text on one line, without what orders a terminal about.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return -1
	}, text)
}

// writeColumns writes a table that people and Markdown read.
func writeColumns(to io.Writer, rows [][]string) error {
	w := tabwriter.NewWriter(to, 0, 0, 1, ' ', 0)
	for n, row := range rows {
		for _, cell := range row {
			cell = strings.NewReplacer("|", "/", "<", "‹").Replace(oneLine(cell))
			fmt.Fprint(w, "| "+cmp.Or(cell, "–")+"\t")
		}
		fmt.Fprintln(w, "|")
		if n == 0 {
			fmt.Fprintln(w, strings.Repeat("|---\t", len(row))+"|")
		}
	}
	return w.Flush()
}

// planned is what is said before anything is made.
func (m *measuring) planned(p measure.Plan) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s at %s, location %s, within %s\n",
		measure.Plural(len(p.Facts), "fact"), m.host(), m.location, m.timeLimit)
	if p.Things == (measure.Things{}) {
		b.WriteString("Nothing is made for that.\n")
	} else {
		fmt.Fprintf(&b, "For that are made, and removed at the end: %s.\n", p.Things)
		fmt.Fprintf(&b, "Servers are of type %s, load balancers of type %s. "+
			"The cloud charges each started hour of them", m.serverType, m.loadBalancerType)
		if p.Things.FloatingIPs > 0 {
			fmt.Fprintf(&b, ", and a whole month of the floating IP: --skip %s leaves it out", measure.FloatingReassign)
		}
		b.WriteString(".\n")
	}
	for _, sentence := range measure.Touched(p.Facts) {
		b.WriteString(sentence + "\n")
	}
	if host, _, _ := strings.Cut(m.host(), ":"); onLoopback(host) && slices.ContainsFunc(p.Facts, inServers) {
		b.WriteString("hcloud-sim runs no programs in its servers: for it, add --api-only.\n")
	}
	for _, r := range measure.Reasons(p.LeftOut) {
		fmt.Fprintf(&b, "Not tried: %s, %s.\n", joined(r.Facts), r.Why)
	}
	return b.String()
}

// inServers reports whether a fact needs programs in throw-away servers.
func inServers(id measure.FactID) bool {
	f, _ := measure.Of(id)
	return f.Needs.Inside && f.Needs.Servers > 0
}

func joined(facts []measure.FactID) string {
	var names []string
	for _, f := range facts {
		names = append(names, string(f))
	}
	return strings.Join(names, ", ")
}

// report writes what was found out, in Markdown: a table, and below it what else was seen, and why
// something was not.
func (m *measuring) report(p measure.Plan, all []measure.Row, started time.Time) error {
	fmt.Fprintf(m.out, "# What the cloud was measured to do\n\nhcloud-sim %s, %s, took %s. "+
		"API: %s, location %s; servers: %s with %s; load balancers: %s.\n\n",
		release(), started.UTC().Format("2006-01-02 15:04 UTC"), time.Since(started).Round(time.Second),
		m.host(), m.location, m.serverType, m.image, m.loadBalancerType)
	rows := [][]string{{"fact", "simulator", "seen", "verdict"}}
	var below []string
	for _, row := range all {
		rows = append(rows, []string{string(row.Fact), row.Assumed, row.Seen, string(row.Verdict)})
		for _, text := range []string{row.Note, row.Why} {
			if text != "" {
				below = append(below, fmt.Sprintf("- %s: %s\n", row.Fact, oneLine(text)))
			}
		}
	}
	if err := writeColumns(m.out, rows); err != nil {
		return err
	}
	for _, r := range measure.Reasons(p.LeftOut) {
		below = append(below, fmt.Sprintf("- not tried: %s, %s\n", joined(r.Facts), r.Why))
	}
	_, err := fmt.Fprintf(m.out, "\n%s\n%s\n", strings.Join(below, ""), measure.Summary(all))
	return err
}
