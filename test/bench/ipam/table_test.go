package ipam_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/underlay-ccm/underlay/test/bench/results"
)

// A row is one line of the table: one run, or the medians of several.
type row struct {
	who, limits, phase string
	runs               int // 0: one
	measured           measurement
	usage              usage
}

func (r row) rate() float64 { return float64(r.measured.nodes) / r.measured.seconds }

// String is the line that is printed while the benchmark runs.
func (r row) String() string {
	return fmt.Sprintf("%s, client limit %s, %s: %d Nodes in %.2f s", r.who, r.limits, r.phase, r.measured.nodes, r.measured.seconds)
}

// scenario is the name of a run in the documents.
func (r row) scenario() string {
	switch {
	case r.phase == "joining" && r.limits == "none":
		return "5,000 Nodes join, no client limit"
	case r.phase == "joining":
		return "Nodes join, each allocator's own client limit"
	case r.phase == "backlog":
		return "5,000 Nodes wait for the allocator, no client limit"
	case strings.HasPrefix(r.phase, "restart"):
		return "The allocator restarts with 5,000 Nodes, one waits"
	default:
		return "A Node a second is replaced among 5,000"
	}
}

// record records the figures of a run.
func (r row) record(b *testing.B) {
	b.Helper()
	figure := func(quantity, unit string, value float64) {
		results.Record(b, results.Figure{
			Scenario: r.scenario(), Contender: r.who, Quantity: quantity, Unit: unit, Value: value,
		})
	}
	switch {
	case r.phase == "joining" && r.limits == "none":
		r.draw(b)
		fallthrough
	case r.phase == "joining", r.phase == "backlog":
		figure("rate", "Nodes/s", r.rate())
	case r.measured.nodes == 1:
		figure("duration", "s", r.measured.seconds)
	}
	if r.measured.median > 0 && r.phase != "backlog" {
		figure("creation to podCIDRs, median", "ms", r.measured.median*1000)
	}
	if r.usage.cpu > 0 {
		figure("CPU time", "s", r.usage.cpu)
		figure("memory at most", "MiB", r.usage.residentMB)
	}
	if r.usage.ledgerBytes > 0 && r.measured.nodes > 1 {
		figure("ledger written for a Node", "kB", r.usage.ledgerBytes/1000/float64(r.measured.nodes))
	}
}

// draw records the course of a run, in some hundred points.
func (r row) draw(b *testing.B) {
	b.Helper()
	line := results.Line{Plot: "5,000 Nodes join: Nodes with podCIDRs over time", Contender: r.who, X: "seconds since the first Node's creation", Y: "Nodes with podCIDRs"}
	served := r.measured.served
	for i := 0; i < len(served); i += max(1, len(served)/100) {
		line.Points = append(line.Points, [2]float64{served[i], float64(i + 1)})
	}
	line.Points = append(line.Points, [2]float64{served[len(served)-1], float64(len(served))})
	results.Draw(b, line)
}

// medians merges all runs of the same kind into one row, in the order of their first occurrence.
// Each figure is a median of its own.
func medians(rows []row) (out []row) {
	for len(rows) > 0 {
		first := rows[0]
		same := func(r row) bool {
			return r.who == first.who && r.limits == first.limits && r.phase == first.phase
		}
		var all []row
		for _, r := range rows {
			if same(r) {
				all = append(all, r)
			}
		}
		rows = slices.DeleteFunc(slices.Clone(rows), same)
		out = append(out, median(all))
	}
	return out
}

func median(all []row) row {
	r := all[0]
	r.runs = len(all)
	of := func(value func(row) float64) float64 {
		var values []float64
		for _, r := range all {
			values = append(values, value(r))
		}
		slices.Sort(values)
		return values[len(values)/2]
	}
	r.measured.seconds = of(func(r row) float64 { return r.measured.seconds })
	r.measured.median = of(func(r row) float64 { return r.measured.median })
	r.measured.late = of(func(r row) float64 { return r.measured.late })
	r.measured.ledgerWrites = int(of(func(r row) float64 { return float64(r.measured.ledgerWrites) }))
	r.usage.cpu = of(func(r row) float64 { return r.usage.cpu })
	r.usage.residentMB = of(func(r row) float64 { return r.usage.residentMB })
	r.usage.ledgerBytes = of(func(r row) float64 { return r.usage.ledgerBytes })
	return r
}

func render(rows []row) string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "allocator\tclient limit\tphase\truns\tNodes\tseconds\tNodes/s\tmedian ms\tp99 ms\tPATCHes/Node\tledger writes\tkB/Node\tother writes\tCPU s\tRSS MB\t")
	for _, r := range rows {
		m := r.measured
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%.2f\t%s\t%s\t%s\t%.3f\t%s\t%s\t%d\t%s\t%s\t\n", r.who, r.limits, r.phase, max(r.runs, 1), m.nodes, m.seconds,
			number(r.rate(), m.nodes > 1), number(m.median*1000, m.median > 0),
			number(m.late*1000, m.late > 0),
			float64(m.patches)/float64(m.nodes), number(float64(m.ledgerWrites), m.ledgerWrites > 0),
			tenths(r.usage.ledgerBytes/1000/float64(m.nodes)), m.otherWrites,
			tenths(r.usage.cpu), number(r.usage.residentMB, r.usage.residentMB > 0))
	}
	_ = w.Flush() // into memory
	return out.String() + `joining: from the first Node's creation to the last one's podCIDR, allocator running; median and p99 from a Node's creation to its podCIDR.
backlog: from the first PATCH to the last, Nodes created before the allocator's start. restart: from the start of the process to the podCIDR.
`
}

func number(v float64, has bool) string {
	if !has {
		return "-"
	}
	return fmt.Sprintf("%.0f", v)
}

func tenths(v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", v)
}
