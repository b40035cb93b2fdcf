package table

import (
	"net/netip"
	"strings"
	"testing"
)

// named is a table of one cell.
func named(value any) Table {
	t := New("named", "", "NAME")
	t.Add(value)
	return t
}

// A text neither begins a row nor moves the cursor; our own colors have their effect.
func TestTextsOfOthers(t *testing.T) {
	for _, orders := range []string{"\x1b[2J", "\u009b2J", "\r", "\x7f", "\u202e"} {
		if got := (Painter{}).Table(named("a" + orders)); strings.Contains(got, orders) {
			t.Errorf("the terminal gets %q", got)
		}
	}
	if forged := (Painter{}).Table(named("a\nb")); strings.Count(forged, "\n") != 2 {
		t.Errorf("a row looks like two: %q", forged)
	}
	if colored := (Painter{Color: true}).Table(named(Good.Cell("a"))); !strings.Contains(colored, "\x1b[32ma"+reset) {
		t.Errorf("our own colors are gone: %q", colored)
	}
	if got, is := Harmless("Größe\t→ ✓\n日本"), "Größe\t→ ✓\n日本"; got != is {
		t.Errorf("%q became %q", is, got)
	}
}

// Columns and rows are selected by the width, numbers are right-aligned, and no line ends with a
// space.
func TestNarrowAndWide(t *testing.T) {
	all := New("", "Title", "NAME", ">COUNT", "+WIDE", "WHY")
	all.Add("a", 7, netip.Addr{}, "")
	all.Add("more", 1234, netip.MustParseAddr("192.0.2.1"), Warn.Cell("late")).Wide = true
	all.Add("→", "", "", "").Narrow = true
	if got, want := (Painter{}).Table(all), "Title\nNAME  COUNT  WHY\na         7\n→\n"; got != want {
		t.Errorf("narrow: got %q, want %q", got, want)
	}
	const wide = "Title\nNAME  COUNT  WIDE       WHY\na         7  –\nmore   1234  192.0.2.1  late\n"
	if got := (Painter{Wide: true}).Table(all); got != wide {
		t.Errorf("wide: got %q, want %q", got, wide)
	}
	if got := (Painter{}).Table(New("", "Title", "NAME")); got != "" {
		t.Errorf("without rows: %q", got)
	}
	if got := Toned("", Bad, true); got.Tone != Plain {
		t.Errorf("an empty cell has the tone %s", got.Tone)
	}
}
