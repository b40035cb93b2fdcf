// Package results records the measurements of the benchmarks, for the tables and plots of
// docs/reference/performance.md. It must never affect a measurement: a benchmark calls it after its
// measurement.
//
// A benchmark run by hand prints its own table and records nothing. `make bench-all` sets a folder
// by UNDERLAY_BENCH_RESULTS, a new one for each package below test/bench, to which the package's
// benchmarks write their records. The package's folder is the subject: "ipam" has its own section,
// file of records and machine, so that one can be measured without the others.
//
// # Format
//
// A file of results has one JSON object a line, with one key, its kind:
//
//	{"figure":{"scenario":"5,000 Nodes join","contender":"underlay","quantity":"rate","unit":"Nodes/s","value":512.3}}
//	{"line":{"plot":"Nodes over time","contender":"underlay","x":"seconds","y":"Nodes","points":[[0,0],[1,512]]}}
//	{"note":{"scenario":"5,000 Nodes join","quantity":"rate","text":"Nodes by the time from the first creation to the last podCIDR"}}
//	{"version":{"program":"kube-controller-manager","version":"v1.37.1"}}
//	{"machine":{"date":"2026-11-25","cpu":"…"}}
//
// The page has a table for each subject with a row for each quantity of a scenario and a column for
// each contender, all in the order of first occurrence; Underlay's name is "underlay", and its
// column is the first. A row shows the median of a figure's rounds, the smallest and the largest; a
// contender without a record has a dash. The n-th record of a figure is that of the n-th round:
// rounds have no numbers. Each plot's title determines its file, and a contender has the same color
// in all of them.
package results

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Folder is the environment variable with the folder of the records. Nothing is recorded if it is
// unset.
const Folder = "UNDERLAY_BENCH_RESULTS"

// File is the name of the file in that folder.
const File = "results.jsonl"

// A Figure is one quantity of one contender in one round of a scenario. Rounds of
// the same scenario record the same Figure again.
type Figure struct {
	Scenario  string  `json:"scenario"`  // "5,000 Nodes join, no client limit"
	Contender string  `json:"contender"` // "underlay", "kube-controller-manager"
	Quantity  string  `json:"quantity"`  // "rate"
	Unit      string  `json:"unit"`      // "Nodes/s", "s", "ms", "MiB", "kB", "requests"; "" for a plain count
	Value     float64 `json:"value"`
	// Source is the origin of a figure that this run has not measured, with its date. The page
	// shows it as a footnote.
	Source string `json:"source,omitempty"`
}

// A Line is the course of one contender in one plot.
type Line struct {
	Plot      string       `json:"plot"` // its title: "Nodes with podCIDRs over time"
	Contender string       `json:"contender"`
	X         string       `json:"x"` // the axes' labels with units: "seconds", "Nodes"
	Y         string       `json:"y"`
	LogX      bool         `json:"logX,omitempty"` // x is above zero and drawn logarithmically
	Points    [][2]float64 `json:"points"`         // x and y, x ascending
}

// A Note explains in one line a quantity of a scenario: its start, its end and its object. Without
// a quantity it is about the scenario, without a scenario about the quantity wherever the subject
// has it, and without both about the subject.
type Note struct {
	Scenario string `json:"scenario,omitempty"`
	Quantity string `json:"quantity,omitempty"`
	Text     string `json:"text"`
}

// A Version is that of a compared program or library.
type Version struct {
	Program string `json:"program"` // "kube-controller-manager", "iproute2"
	Version string `json:"version"`
}

// A Machine describes the hardware, date and software of the measurement. `make bench-all` records
// it; benchmarks don't have to.
type Machine struct {
	Date     string `json:"date"` // 2026-11-25
	CPU      string `json:"cpu"`  // the model's name
	Cores    int    `json:"cores"`
	MemoryGB int    `json:"memoryGB"`
	Kernel   string `json:"kernel"`
	Go       string `json:"go"`
	Underlay string `json:"underlay"` // as git describes the commit
	Seconds  int    `json:"seconds"`  // duration of the benchmarks
}

// An Entry is one line of a file of results. One field is set.
type Entry struct {
	Figure  *Figure  `json:"figure,omitempty"`
	Line    *Line    `json:"line,omitempty"`
	Note    *Note    `json:"note,omitempty"`
	Version *Version `json:"version,omitempty"`
	Machine *Machine `json:"machine,omitempty"`
}

// Record records figures of one round.
func Record(tb testing.TB, figures ...Figure) {
	tb.Helper()
	entries := make([]Entry, len(figures))
	for i := range figures {
		entries[i].Figure = &figures[i]
	}
	write(tb, entries)
}

// Draw records lines of a plot. A line of the same plot and contender replaces the previous one.
func Draw(tb testing.TB, lines ...Line) {
	tb.Helper()
	entries := make([]Entry, len(lines))
	for i := range lines {
		entries[i].Line = &lines[i]
	}
	write(tb, entries)
}

// Explain records notes about figures. The same note may be recorded again.
func Explain(tb testing.TB, notes ...Note) {
	tb.Helper()
	entries := make([]Entry, len(notes))
	for i := range notes {
		entries[i].Note = &notes[i]
	}
	write(tb, entries)
}

// Compare records the versions of the programs that Underlay is compared with.
func Compare(tb testing.TB, versions ...Version) {
	tb.Helper()
	entries := make([]Entry, len(versions))
	for i := range versions {
		entries[i].Version = &versions[i]
	}
	write(tb, entries)
}

// Library is the version of a module that the test is built with, from go.mod.
func Library(tb testing.TB, module string) Version {
	tb.Helper()
	version, err := exec.CommandContext(tb.Context(), "go", "list", "-m", "-f", "{{.Version}}", module).Output()
	if err != nil {
		tb.Fatalf("asking go.mod for the version of %s: %v", module, err)
	}
	return Version{Program: module, Version: strings.TrimSpace(string(version))}
}

// write appends to the folder's file; one write for each call, so that several benchmarks can write
// at the same time.
func write(tb testing.TB, entries []Entry) {
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
	file, err := os.OpenFile(filepath.Join(folder, File), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
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
