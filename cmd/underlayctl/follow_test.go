package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/internal/table"
)

// looks is a feed of snapshots that a test sets. Its times are those of a bubble.
type looks struct {
	mu   sync.Mutex
	live survey.Live
}

func (l *looks) Look(ctx context.Context) (survey.Live, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.live, ctx.Err()
}

func (l *looks) set(live survey.Live) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.live = live
}

// look returns a current Snapshot with Nodes.
func look(names ...string) *survey.Snapshot {
	s := &survey.Snapshot{Taken: time.Now()}
	for _, name := range names {
		s.Nodes = append(s.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return s
}

func namesOf(s *survey.Snapshot) (table.Page, error) {
	if len(s.Nodes) == 0 {
		return table.Page{}, errors.New("Nodes can't be seen")
	}
	t := table.New("nodes", "", "NODE")
	for _, n := range s.Nodes {
		t.Add(n.Name)
	}
	return table.Page{Tables: []table.Table{t}, Notes: []string{"a note"}}, nil
}

// watching is a running --watch, in a bubble that begins at midnight.
type watching struct {
	*looks
	t           *testing.T
	out, errors bytes.Buffer
	ended       chan error
	end         context.CancelFunc
}

func startWatching(t *testing.T, w process, output string, first *survey.Snapshot) *watching {
	ctx, cancel := context.WithCancel(t.Context())
	x := &watching{
		t: t, looks: &looks{live: survey.Live{Snapshot: first}}, ended: make(chan error, 1), end: cancel,
	}
	w.stdout, w.stderr, w.getenv = &x.out, &x.errors, func(name string) string { return map[string]string{"NO_COLOR": "1"}[name] }
	s := &shower{w: w, o: &options{output: output}, title: "underlayctl nodes", of: namesOf}
	go func() { x.ended <- s.follow(ctx, x.looks) }()
	synctest.Wait()
	return x
}

// saw returns the output for a new snapshot.
func (x *watching) saw(live survey.Live) string {
	x.out.Reset()
	x.set(live)
	time.Sleep(survey.ShortestPause)
	synctest.Wait()
	return x.out.String()
}

func (x *watching) over() {
	x.t.Helper()
	x.end()
	if err := <-x.ended; err != nil {
		x.t.Errorf("after Ctrl-C: %v", err)
	}
}

func expectText(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func TestWatchAddsBlocksWhereThereIsNoTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := startWatching(t, process{}, "table", look("a"))
		expectText(t, "at first", x.out.String(), "2000-01-01T00:00:00Z\nNODE\na\n\n")
		expectText(t, "standard error", x.errors.String(), "note: a note\n")
		time.Sleep(10 * time.Second)
		expectText(t, "the same", x.saw(survey.Live{Snapshot: look("a")}), "")
		time.Sleep(time.Second)
		expectText(t, "a change", x.saw(survey.Live{Snapshot: look("a", "b")}), "2000-01-01T00:00:13Z\nNODE\na\nb\n\n")
		expectText(t, "trouble", x.saw(survey.Live{Snapshot: x.live.Snapshot, Trouble: "the API server\nis away"}), "")
		x.saw(x.live)
		expectText(t, "standard error", x.errors.String(), "note: a note\ntrouble: the API server is away\n")
		x.over()
	})
}

func TestWatchOfProgramsIsADocumentALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := startWatching(t, process{terminal: true}, "json", look("a"))
		all := x.out.String() + x.saw(survey.Live{Snapshot: look("a")}) + x.saw(survey.Live{Snapshot: look("b")})
		x.over()
		expectText(t, "JSON", all, `{"nodes":[{"node":"a"}],"notes":["a note"]}`+"\n"+`{"nodes":[{"node":"b"}],"notes":["a note"]}`+"\n")
		for line := range strings.Lines(all) {
			if !json.Valid([]byte(line)) {
				t.Errorf("%q is no JSON", line)
			}
		}
		x = startWatching(t, process{}, "yaml", look("a"))
		expectText(t, "YAML", x.out.String()+x.saw(survey.Live{Snapshot: look("b")}), "---\nnodes:\n- node: a\nnotes:\n- a note\n---\nnodes:\n- node: b\nnotes:\n- a note\n")
		x.over()
	})
}

func TestWatchRedrawsATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := startWatching(t, process{terminal: true}, "table", look("a", "b"))
		const head = "\x1b[H\x1b[J2000-01-01T00:00:0"
		const title = "Z  underlayctl nodes  Ctrl-C ends it\n\nNODE\na\n"
		expectText(t, "at first", x.out.String(), head+"0"+title+"b\n\n")
		time.Sleep(time.Second)
		expectText(t, "a change", x.saw(survey.Live{Snapshot: look("a")}), head+"1"+title+"\n")
		// An error is shown with the time of the displayed snapshot, and again each time, because
		// the screen is cleared.
		for range 2 {
			x.errors.Reset()
			got := x.saw(survey.Live{Snapshot: x.live.Snapshot, Trouble: "the API server is away"})
			expectText(t, "in trouble", got, head+"1"+title+"\n")
			expectText(t, "remarks", x.errors.String(), "trouble: the API server is away\nnote: a note\n")
		}
		// A snapshot without the Nodes keeps the previous ones.
		x.errors.Reset()
		got := x.saw(survey.Live{Snapshot: look()})
		if !strings.Contains(got, "\na\n") || !strings.Contains(x.errors.String(), "trouble: not up to date: Nodes can't be seen") {
			t.Errorf("not seen: %q, %q", got, x.errors.String())
		}
		x.over()
	})
}

func TestWatchThatSeesNothingAtFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := startWatching(t, process{terminal: true}, "table", look())
		if err := <-x.ended; err == nil || !strings.Contains(err.Error(), "Nodes can't be seen") {
			t.Errorf("%v", err)
		}
		expectText(t, "output", x.out.String(), "")
		x.end()
	})
}
