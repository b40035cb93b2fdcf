package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/test/bench/results"
)

func texts(t *testing.T, svg []byte) (out []string) {
	t.Helper()
	decoder := xml.NewDecoder(bytes.NewReader(svg))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("the plot isn't XML: %v", err)
		}
		if text, is := token.(xml.CharData); is && strings.TrimSpace(string(text)) != "" {
			out = append(out, strings.TrimSpace(string(text)))
		}
	}
}

// A plot is the same each time, has an opaque background, its labels and all contenders.
func TestPlot(t *testing.T) {
	entries := []results.Entry{
		lineOf("Nodes over time", "peer", [2]float64{0, 0}, [2]float64{2, 5000}),
		lineOf("Nodes over time", ours, [2]float64{0, 0}, [2]float64{1, 5000}),
	}
	all := []section{collect("ipam", entries)}
	first, err := plots(all)
	if err != nil {
		t.Fatal(err)
	}
	second, err := plots(all)
	if err != nil {
		t.Fatal(err)
	}
	svg := first["nodes-over-time.svg"]
	if len(first) != 1 || !bytes.Equal(svg, second["nodes-over-time.svg"]) {
		t.Fatalf("%d plots, want one that is the same twice", len(first))
	}
	said := strings.Join(texts(t, svg), "\n")
	for _, want := range []string{"Nodes over time", "seconds", "Nodes", "Underlay", "peer", "5,000"} {
		if !strings.Contains(said, want) {
			t.Errorf("the plot doesn't say %q; it says\n%s", want, said)
		}
	}
	if !bytes.Contains(svg, []byte("fill:#FFFFFF")) || !bytes.Contains(svg, []byte(shownWith)) {
		t.Error("the plot has no white background, or a font that only few have")
	}
	if bytes.Contains(svg, []byte("font-family:"+drawnWith+";")) || bytes.Contains(svg, []byte("Serif;")) {
		t.Error("a text has no font to fall back to")
	}
}

// Contenders of one plot differ, and a subject that is measured later changes no colors of others.
func TestStyles(t *testing.T) {
	routes := collect("routes", []results.Entry{lineOf("a", ours), lineOf("a", "one"), lineOf("a", "two")})
	agent := collect("agent", []results.Entry{lineOf("b", "three"), lineOf("b", "one")})
	before, after := styles([]section{routes}), styles([]section{routes, agent})
	for _, who := range []string{ours, "one", "two"} {
		if before[who].color != after[who].color {
			t.Errorf("%s has another color because another subject was measured", who)
		}
	}
	if after["one"].color == after["two"].color || after["three"].color == after["one"].color || after[ours].color == after["one"].color {
		t.Errorf("two of one plot have the same color: %v", after)
	}
}

func TestInvalidPlots(t *testing.T) {
	log := lineOf("p", ours, [2]float64{0, 1}, [2]float64{1, 2})
	log.Line.LogX = true
	for name, entries := range map[string][]results.Entry{
		"zero, logarithmically":    {log},
		"two plots with one title": {lineOf("Same", ours, [2]float64{0, 1}, [2]float64{1, 1}), lineOf("same!", ours, [2]float64{0, 1}, [2]float64{1, 1})},
		"a line without points":    {lineOf("p", ours)},
	} {
		if _, err := plots([]section{collect("s", entries)}); err == nil {
			t.Errorf("%s was drawn", name)
		}
	}
}
