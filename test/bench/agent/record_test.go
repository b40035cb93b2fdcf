//go:build linux

package agent_test

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/test/bench/results"
)

// ours is the contender name of Underlay.
const ours = "underlay"

// The figures of the program's weight.
const (
	untilReady  = "until ready"
	inMemory    = "resident memory"
	ownMemory   = "resident memory of its own"
	startMemory = "resident memory at most until ready"
	peakMemory  = "resident memory at most"
	atRest      = "processor at rest"
	watching    = "processor between passes"
)

// recordTable records how long each filling of a table with this number of routes took.
func recordTable(b *testing.B, routes int, contender string, took []time.Duration) {
	b.Helper()
	const quantity = "until all routes stand"
	out, err := exec.CommandContext(b.Context(), "ip", "-V").Output()
	if err != nil {
		b.Fatal(err)
	}
	// "ip utility, iproute2-6.1.0, libbpf 1.1.2"
	_, version, _ := strings.Cut(strings.TrimSpace(string(out)), "iproute2-")
	version, _, _ = strings.Cut(version, ",")
	results.Compare(b, results.Version{Program: "iproute2", Version: version}, results.Library(b, "github.com/vishvananda/netlink"))
	results.Explain(
		b,
		results.Note{Text: "A real kernel, in a network namespace of the benchmark's own. `ip-batch` is one `ip -batch` with all routes in a file, with our metrics, and with one metric for all, as most programs have; `socket-per-route` opens a netlink socket for each route, as most node-route programs do. Neither looks or decides, both only write."},
		results.Note{Quantity: quantity, Text: "from a synced cache of Nodes (`ip-batch`: from the program's start) to the kernel's event about the last route."},
	)
	for _, d := range took {
		results.Record(b, results.Figure{
			Scenario: thousands(routes) + " routes to peers, from none", Contender: contender, Quantity: quantity,
			Unit: "ms", Value: milliseconds(d),
		})
	}
}

// recordLatency records how soon a change was in the kernel, and the distribution.
func recordLatency(b *testing.B, scenario string, took []time.Duration) {
	b.Helper()
	const half, most = "median", "p99"
	results.Explain(
		b,
		results.Note{Quantity: half, Text: "from the Node's update, or the route's deletion, to the kernel's event about the new route."},
		results.Note{Quantity: most, Text: "the same, below which 99 of 100 are."},
	)
	results.Record(
		b,
		results.Figure{Scenario: scenario, Contender: ours, Quantity: half, Unit: "ms", Value: milliseconds(percentile(took, 50))},
		results.Figure{Scenario: scenario, Contender: ours, Quantity: most, Unit: "ms", Value: milliseconds(percentile(took, 99))},
	)
	const steps = 200 // of the distribution: half a percent each
	line := results.Line{Plot: "How soon a route is right again", Contender: strings.ToLower(scenario[:1]) + scenario[1:], X: "milliseconds", Y: "percent of all", LogX: true}
	sorted := slices.Sorted(slices.Values(took))
	for i := range steps {
		at := sorted[min(len(sorted)-1, len(sorted)*(i+1)/steps)]
		line.Points = append(line.Points, [2]float64{milliseconds(at), 100 * float64(i+1) / steps})
	}
	results.Draw(b, line)
}

// recordWeight records the program's resources.
func recordWeight(b *testing.B, scenario string, figures map[string]float64) {
	b.Helper()
	results.Explain(
		b,
		results.Note{Quantity: untilReady, Text: "from the process's start to its readiness: all routes stand."},
		results.Note{Quantity: inMemory, Text: "a minute later."},
		results.Note{Quantity: ownMemory, Text: "of that, what isn't mapped from a file."},
		results.Note{Quantity: peakMemory, Text: "the largest since the start."},
		results.Note{Quantity: startMemory, Text: "the largest until then."},
		results.Note{Quantity: atRest, Text: "of one core, in a minute in which nothing happens but what the scenario says."},
		results.Note{Quantity: watching, Text: "the same without the pass over all routes that the minute has in it: the median of slices of 5 s."},
	)
	for _, f := range []struct{ quantity, unit string }{{untilReady, "s"}, {inMemory, "MiB"}, {ownMemory, "MiB"}, {startMemory, "MiB"}, {peakMemory, "MiB"}, {atRest, "%"}, {watching, "%"}} {
		value, measured := figures[f.quantity]
		if !measured {
			continue
		}
		fmt.Printf("    %-36s %8.2f %s\n", f.quantity, value, f.unit)
		results.Record(b, results.Figure{
			Scenario: scenario, Contender: ours, Quantity: f.quantity, Unit: f.unit, Value: value,
		})
	}
}

// thousands is a number of four to six digits with its comma.
func thousands(n int) string { return fmt.Sprintf("%d,%03d", n/1000, n%1000) }
