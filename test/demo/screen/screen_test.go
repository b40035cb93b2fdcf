package screen_test

import (
	"errors"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/underlay-ccm/underlay/test/demo/screen"
	"github.com/underlay-ccm/underlay/test/demo/state"
	"github.com/underlay-ccm/underlay/test/demo/state/statetest"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing them")

// everything is every kind of text on the screen.
func everything(p screen.Painter) string {
	w, line := statetest.State()
	held := screen.Result{Name: "join", Title: "Machines join", Took: 2100 * time.Millisecond}
	failed := screen.Result{
		Name: "grow", Title: "Another joins", Took: time.Minute, Err: errors.New("not in time"),
		Missing: []string{"node-3: route", "web: target node-3"},
	}
	skipped := screen.Result{Name: "lose", Skipped: true}
	return p.Heading(2, 6, "Machines join") +
		p.Note("times since the machine joined") +
		p.Event(state.Event{Subject: "node-1", What: state.Unavailable, Detail: "NoRouteCreated: waiting for a podCIDR", Since: 40 * time.Millisecond}) +
		p.Event(state.Event{Subject: "node-1", What: state.Ready, Since: 12*time.Second + 345*time.Millisecond}) +
		p.Event(state.Event{Subject: "network", What: "route 192.168.178.0/24 removed", Over: true}) +
		p.Held(held) +
		p.Tables(w, line, []string{"node-1", "node-2", "node-3"}, statetest.Epoch().Add(31*time.Second)) +
		p.Trips([]screen.Trip{
			{From: "client", To: "web-2", Way: "IPv4", Answered: "web-2", Seen: netip.MustParseAddr("10.244.0.3"), Took: 1234567},
			{From: "outside", To: "client", Way: "IPv6"},
		}) +
		p.Failure(failed, "/tmp/logs") +
		p.Summary([]screen.Result{held, failed, skipped})
}

func TestGolden(t *testing.T) {
	for name, painter := range map[string]screen.Painter{"plain.txt": {}, "color.txt": {Color: true}} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join("testdata", name)
			// Escape codes aren't readable in a file; a replacement is.
			got := strings.ReplaceAll(everything(painter), "\x1b", "␛")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("differs from %s (write it with -update):\n%s", path, got)
			}
		})
	}
}

func TestPlainIsPlain(t *testing.T) {
	text := everything(screen.Painter{})
	if strings.Contains(text, "\x1b") {
		t.Error("escape codes without color")
	}
	for line := range strings.Lines(text) {
		if strings.TrimRight(line, " \n") != strings.TrimSuffix(line, "\n") {
			t.Errorf("a line ends with a space: %q", line)
		}
	}
}

func TestStatusFitsOnOneLine(t *testing.T) {
	missing := []string{"node-1: route, NetworkUnavailable=False, taints gone", "node-2: everything"}
	for _, width := range []int{1, 20, 40, 200} {
		line := screen.Painter{}.Status(3*time.Second, missing, width)
		if utf8.RuneCountInString(line) > width || strings.Contains(line, "\n") {
			t.Errorf("width %d: %q", width, line)
		}
	}
}

func TestBarShowsEveryShare(t *testing.T) {
	tests := map[string]struct{ ours, foreign int }{
		"nothing": {}, "one each": {1, 1}, "full": {90, 10}, "over": {100, 20},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := state.New(statetest.Layout())
			for i := range test.ours {
				w.Cloud.Routes = append(w.Cloud.Routes, statetest.Route(i+1))
			}
			for range test.foreign {
				w.Cloud.Routes = append(w.Cloud.Routes, statetest.Foreign())
			}
			text := screen.Painter{}.Tables(w, state.NewTimeline(), nil, statetest.Epoch())
			for cell, count := range map[string]int{"█": test.ours, "▓": test.foreign} {
				if strings.Contains(text, cell) != (count > 0) {
					t.Errorf("%d routes, but %d cells %s", count, strings.Count(text, cell), cell)
				}
			}
		})
	}
}
