package main

import (
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/test/bench/results"
)

func figureOf(scenario, contender, quantity string, v float64) results.Entry {
	return results.Entry{Figure: &results.Figure{Scenario: scenario, Contender: contender, Quantity: quantity, Unit: "s", Value: v}}
}

func lineOf(plot, contender string, points ...[2]float64) results.Entry {
	return results.Entry{Line: &results.Line{Plot: plot, Contender: contender, X: "seconds", Y: "Nodes", Points: points}}
}

// Rounds become a median and a spread, contenders columns, scenarios groups of rows; a missing
// record is a dash, and figures from elsewhere name their source.
func TestTable(t *testing.T) {
	elsewhere := figureOf("many join", "peer", "wait", 40)
	elsewhere.Figure.Source = "a book, 2026"
	s := collect("new", []results.Entry{
		{Machine: &results.Machine{Date: "2026-11-25", CPU: "a CPU", Cores: 2, MemoryGB: 24, Kernel: "6.1", Go: "go1.26", Underlay: "v0.1.0", Seconds: 600}},
		{Version: &results.Version{Program: "peer", Version: "v1"}},
		{Note: &results.Note{Text: "What this is."}},
		{Note: &results.Note{Quantity: "wait", Text: "until it ends."}},
		figureOf("many join", "peer", "wait|rest", 1500.4),
		figureOf("one joins", ours, "wait", 0.0421),
		figureOf("many join", ours, "wait", 3), figureOf("many join", ours, "wait", 1), figureOf("many join", ours, "wait", 2.5),
		elsewhere,
		figureOf("one joins", "peer", "wait", 7), figureOf("one joins", "peer", "wait", 7),
		lineOf("Nodes over time", ours, [2]float64{0, 0}, [2]float64{1, 10}),
	})
	got := markdown([]section{s})
	for _, want := range []string{
		"\n## new\n\nWhat this is.\n\nMeasured on 2026-11-25, in 10 min: a CPU, 2 cores, 24 GiB of memory, Linux 6.1. Underlay v0.1.0, peer v1, go1.26.\n",
		"| scenario | figure | Underlay | peer |\n|---|---|---:|---:|\n" +
			"| many join | wait\\|rest, s | — | 1,500 |\n" +
			"|  | wait, s | 2.50 (1–3, 3) | 40 <sup>1</sup> |\n" +
			"| one joins | wait, s | 0.042 | 7 (2 alike) |\n" +
			"\n<sup>1</sup> a book, 2026.\n",
		"\n- *wait*: until it ends.\n",
		"\n![Nodes over time](performance/nodes-over-time.svg)\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the page lacks\n%s\nit is\n%s", want, got)
		}
	}
}

// The kept entries have each note once and the last version of a line, and a page is the same
// before and after.
func TestSettled(t *testing.T) {
	note := results.Entry{Note: &results.Note{Text: "x"}}
	again := results.Entry{Note: &results.Note{Text: "x"}}
	old, last := lineOf("p", ours, [2]float64{0, 1}), lineOf("p", ours, [2]float64{0, 2})
	entries := []results.Entry{note, old, figureOf("s", ours, "q", 1), again, last, lineOf("p", "peer"), figureOf("s", ours, "q", 1)}
	kept := settled(entries)
	if len(kept) != 5 || kept[2] != last {
		t.Errorf("kept %v", kept)
	}
	before, after := collect("s", entries), collect("s", kept)
	before.notes = before.notes[:1] // only the repeated one may be removed
	if b, a := markdown([]section{before}), markdown([]section{after}); b != a {
		t.Errorf("before\n%s\nafter\n%s", b, a)
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 7: "7", 0.0421: "0.042", 0.5: "0.50", 1.234: "1.23", 12.34: "12.3", 123.4: "123", 999.6: "1,000", 1234567: "1,234,567", -1500: "-1,500",
	} {
		if got := number(v); got != want {
			t.Errorf("%v is %s, want %s", v, got, want)
		}
	}
}

func TestChosen(t *testing.T) {
	all := []string{"ipam", "lb"}
	if got, err := chosen(all, ""); err != nil || len(got) != 2 {
		t.Errorf("all: %v, %v", got, err)
	}
	if got, err := chosen(all, "lb"); err != nil || len(got) != 1 || got[0] != "lb" {
		t.Errorf("one: %v, %v", got, err)
	}
	if _, err := chosen(all, "ipam,bl"); err == nil || !strings.Contains(err.Error(), `"bl": there are ipam, lb`) {
		t.Errorf("a subject that isn't there: %v", err)
	}
}

// Every subject that the Makefile measures has a title or its folder's name, and those of today's
// page exist.
func TestSubjects(t *testing.T) {
	all, err := subjects(tree)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(all, " "); !strings.Contains(got, "ipam routes lb scale agent address") {
		t.Errorf("subjects are %s", got)
	}
}
