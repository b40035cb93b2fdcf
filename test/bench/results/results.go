// Package results keeps what the benchmarks measure, for the table and the plots
// of docs/reference/performance.md. It must never change what is measured: a
// benchmark calls it when its measurement is over.
//
// A benchmark run by hand prints its own table and keeps nothing. `make bench-all`
// names a folder by UNDERLAY_BENCH_RESULTS, and what each benchmark records goes
// there.
package results

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// Folder is the environment variable that names the folder to record to. Nothing
// is recorded where it is unset.
const Folder = "UNDERLAY_BENCH_RESULTS"

// A Figure is one quantity of one contender in one run of a scenario. Runs of the
// same scenario record the same Figure again; the table shows their median and
// their spread.
type Figure struct {
	Scenario  string  `json:"scenario"`  // "5,000 Nodes join, no client limit"
	Contender string  `json:"contender"` // "underlay", "kube-controller-manager"
	Quantity  string  `json:"quantity"`  // "rate"
	Unit      string  `json:"unit"`      // "Nodes/s", "s", "ms", "MiB", "kB", "requests"; "" for a plain count
	Value     float64 `json:"value"`
}

// A Line is the course of one contender in one plot.
type Line struct {
	Plot      string       `json:"plot"` // its title: "Nodes with podCIDRs over time"
	Contender string       `json:"contender"`
	X         string       `json:"x"` // the axes' labels with units: "seconds", "Nodes"
	Y         string       `json:"y"`
	Points    [][2]float64 `json:"points"` // x and y, x ascending
}

// An entry is one line of a file of results.
type entry struct {
	Figure *Figure `json:"figure,omitempty"`
	Line   *Line   `json:"line,omitempty"`
}

// Record keeps figures of one run.
func Record(tb testing.TB, figures ...Figure) {
	tb.Helper()
	entries := make([]entry, len(figures))
	for i := range figures {
		entries[i].Figure = &figures[i]
	}
	write(tb, entries)
}

// Draw keeps lines for a plot. A line of the same plot and contender replaces one
// that was kept before.
func Draw(tb testing.TB, lines ...Line) {
	tb.Helper()
	entries := make([]entry, len(lines))
	for i := range lines {
		entries[i].Line = &lines[i]
	}
	write(tb, entries)
}

// write appends to the folder's file; one write for each call, so that several
// benchmarks can write at the same time.
func write(tb testing.TB, entries []entry) {
	tb.Helper()
	folder := os.Getenv(Folder)
	if folder == "" {
		return
	}
	var lines []byte
	for _, e := range entries {
		line, err := json.Marshal(e)
		if err != nil {
			tb.Fatal(err)
		}
		lines = append(append(lines, line...), '\n')
	}
	file, err := os.OpenFile(filepath.Join(folder, "results.jsonl"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := file.Write(lines); err != nil {
		tb.Error(err)
	}
	if err := file.Close(); err != nil {
		tb.Error(err)
	}
}
