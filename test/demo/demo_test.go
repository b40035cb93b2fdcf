package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/test/demo/screen"
	"github.com/underlay-ccm/underlay/test/demo/state"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
)

// TestMain: the demo shows packets in a process of its own, which it starts by the path of its own
// program.
func TestMain(m *testing.M) {
	for _, arg := range os.Args[1:] {
		if folder, ok := strings.CutPrefix(arg, packetsFlag+"="); ok {
			os.Exit(packetsShown(context.Background(), folder, os.Stdout))
		}
	}
	os.Exit(m.Run())
}

// skeleton is the part that is the same in every run: the steps' titles, the tables' titles and
// heads, and the names in the summary.
func skeleton(text string) []string {
	inSummary := regexp.MustCompile(`[✓✗–] ([a-z]+)`)
	var bones []string
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		switch {
		case strings.HasPrefix(line, "▸ "):
			bones = append(bones, line)
		case strings.HasPrefix(line, "── ") && i+1 < len(lines):
			bones = append(bones, line+" "+strings.Join(strings.Fields(lines[i+1]), " "))
		case strings.HasPrefix(line, "✓ "):
			for _, found := range inSummary.FindAllStringSubmatch(line, -1) {
				bones = append(bones, "✓ "+found[1])
			}
		}
	}
	return bones
}

// promised is the skeleton of a successful demo, with packets or, on hosts that can't show them,
// without.
func promised(packets bool) []string {
	var text strings.Builder
	var results []screen.Result
	p := screen.Painter{}
	steps := append(append([]step{begin()}, scenario()...), doctorStep())
	if packets {
		steps = append(steps, packetsStep())
	}
	for i, s := range steps {
		text.WriteString(p.Heading(i+1, len(steps), s.title))
		results = append(results, screen.Result{Name: s.name})
	}
	if packets {
		text.WriteString(p.Trips(nil))
	}
	text.WriteString(p.Tables(state.New(state.Layout{}), state.NewTimeline(), everyMachine(),
		time.Time{}))
	text.WriteString(p.Summary(results))
	return skeleton(text.String())
}

func TestDocsShowTheDemosOutput(t *testing.T) {
	bones := func(path string) []string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return skeleton(string(text))
	}
	want := promised(true)
	if got := bones("../../docs/tutorial/play.md"); !slices.Equal(got, want) {
		t.Errorf("docs/tutorial/play.md shows another demo: record it again with make demo ONCE=1\n got %q\nwant %q", got, want)
	}
	// Package recording draws the picture from the tutorial's page.
	readme, err := os.ReadFile("../../README.md")
	if err != nil || !bytes.Contains(readme, []byte("](docs/demo.svg)")) {
		t.Errorf("README.md shows nothing of the demo (%v): show docs/demo.svg", err)
	}
}

// screenOf keeps the output and notifies when the cluster is left to the user.
type screenOf struct {
	mu   sync.Mutex
	text bytes.Buffer
	up   chan struct{}
}

func (s *screenOf) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if bytes.Contains(b, []byte("The cluster stays up")) {
		close(s.up)
	}
	return s.text.Write(b)
}

func (s *screenOf) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// TestDemo is the demo itself: every step succeeds, against the real control plane, and then the
// printed commands work.
func TestDemo(t *testing.T) {
	out := &screenOf{up: make(chan struct{})}
	folder := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan int, 1)
	go func() { ended <- show(ctx, &terminal{out: out, width: 80}, folder, false) }()
	code := -1
	select {
	case code = <-ended:
		t.Errorf("it ended, and did not stay up")
	case <-out.up:
		played(t, out.String())
		cancel()
		code = <-ended
	}
	t.Log(out.String())
	if code != 0 {
		t.Fatalf("exit code %d, want 0", code)
	}
	if got, want := skeleton(out.String()), promised(noPackets() == ""); !slices.Equal(got, want) {
		t.Errorf("\n got %q\nwant %q", got, want)
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Error("escape codes, though this is no terminal")
	}
	logs, err := filepath.Glob(filepath.Join(folder, "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("no logs in the demo's folder: %v", err)
	}
	for _, path := range logs {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out.String()+string(content), cluster.Token) {
			t.Errorf("the token is on the screen or in %s", filepath.Base(path))
		}
	}
}

func TestScenario(t *testing.T) {
	names := map[string]bool{}
	for _, s := range append([]step{begin()}, scenario()...) {
		if s.name == "" || s.title == "" || s.limit <= 0 {
			t.Errorf("step %+v: every step has a name, a title and a limit", s)
		}
		if names[s.name] {
			t.Errorf("two steps are called %s", s.name)
		}
		names[s.name] = true
	}
	for _, s := range scenario() {
		for _, m := range s.want.Machines {
			if !slices.Contains(everyMachine(), m) {
				t.Errorf("step %s: %s is not in the table of machines", s.name, m)
			}
		}
		// A step must change something that it waits for, otherwise it shows nothing.
		if missing := state.New(state.Layout{}).Missing(state.NewTimeline(), s.want); len(missing) == 0 {
			t.Errorf("step %s holds in an empty cluster", s.name)
		}
	}
}

func TestEnd(t *testing.T) {
	held, late := screen.Result{Name: "a", Title: "First"}, screen.Result{Name: "b", Title: "Second", Err: errLate, Missing: []string{"a thing"}}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	tests := map[string]struct {
		ctx     context.Context
		results []screen.Result
		code    int
		says    []string
	}{
		"all held":               {t.Context(), []screen.Result{held, held}, 0, []string{"✓ a"}},
		"late":                   {t.Context(), []screen.Result{held, late, {Name: "c", Skipped: true}}, 1, []string{"✗ Second: not in time", "a thing", "logs: /the/logs", "✓ a", "✗ b", "– c"}},
		"broken":                 {t.Context(), []screen.Result{{Title: "First", Err: errors.New("it broke")}}, 1, []string{"✗ First: it broke"}},
		"interrupted":            {gone, []screen.Result{held, {Err: context.Canceled}}, interrupted, []string{"interrupted"}},
		"held, then interrupted": {gone, []screen.Result{held}, 0, []string{"✓ a"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if code := (&terminal{out: &out}).end(test.ctx, test.results, "/the/logs"); code != test.code {
				t.Errorf("exit code %d, want %d", code, test.code)
			}
			for _, text := range test.says {
				if !strings.Contains(out.String(), text) {
					t.Errorf("it doesn't say %q:\n%s", text, out.String())
				}
			}
		})
	}
}

func TestTerminal(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if openTerminal(file, func(string) string { return "" }).Color {
		t.Error("a file gets color")
	}
	var out bytes.Buffer
	plain := &terminal{out: &out}
	plain.wait("waiting")
	plain.print("done\n")
	if out.String() != "done\n" {
		t.Errorf("without a terminal: %q, want only what is printed", out.String())
	}
	out.Reset()
	live := &terminal{Painter: screen.Painter{Color: true}, out: &out}
	live.wait("waiting")
	live.print("done\n")
	if want := "waiting\r\x1b[2Kdone\n"; out.String() != want {
		t.Errorf("on a terminal: %q, want %q", out.String(), want)
	}
}
