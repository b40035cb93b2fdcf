package recording

import (
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "draw docs/demo.svg anew instead of comparing it")

const (
	page    = "../../../docs/tutorial/play.md"
	picture = "../../../docs/demo.svg"
	// most is the size that readers of a README may have to load.
	most = 60_000
)

const (
	title       = "make demo"
	description = "A recording of make demo in a terminal: three machines join and get podCIDRs and routes, a Service gets a load balancer, a fourth machine joins, a server is deleted, and packets are sent in both families, and to a node beyond the route table by a tunnel. The tutorial Play with a cluster has it as text."
)

// recorded is the output of the demo that the tutorial shows.
func recorded(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	const begin = "```console\n$ make demo"
	_, after, found := strings.Cut(string(text), begin)
	output, _, closed := strings.Cut(after, "\n```")
	if !found || !closed {
		t.Fatalf("%s has no recording of the demo: a block that begins with %q", page, begin)
	}
	return "$ make demo" + output
}

// TestDocument keeps the picture equal to the recorded output. To update it: go test
// ./test/demo/recording -run TestDocument -update.
func TestDocument(t *testing.T) {
	want := Parse(recorded(t)).SVG(title, description)
	if *update {
		if err := os.WriteFile(picture, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(picture)
	if err != nil || string(got) != want {
		t.Errorf("docs/demo.svg is not what docs/tutorial/play.md records (%v): make generate", err)
	}
	if len(want) > most {
		t.Errorf("%d bytes, want at most %d", len(want), most)
	}
}

// Every line of the recording is in the picture, and no others; nothing is loaded.
func TestThePictureShowsTheRecording(t *testing.T) {
	output := recorded(t)
	svg := Parse(output).SVG(title, description)
	var shown strings.Builder
	depth := 0 // in text
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("the picture is no XML: %v", err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			if e.Name.Local == "text" || depth > 0 {
				depth++
			}
			if e.Name.Local == "script" || e.Name.Local == "image" {
				t.Errorf("the picture has a %s", e.Name.Local)
			}
		case xml.EndElement:
			depth = max(0, depth-1)
		case xml.CharData:
			if depth > 0 {
				shown.Write(e)
			}
		}
	}
	if got, want := shown.String(), strings.ReplaceAll(output, "\n", ""); got != want {
		t.Errorf("it shows\n%s\nwant\n%s", got, want)
	}
}

func TestLinesComeWhenTheyCame(t *testing.T) {
	r := Parse(`$ make demo
words

▸ 1/2 A start
   3.0 s  a control plane
  ✓ after 4.0 s

▸ 2/2 Machines join
   +0.1s  node-1   joined      tainted
   +0.3s  node-1   Ready
   +0.2s  node-2   joined
  ✓ after 1.0 s

── Nodes ──
  node
`)
	const second, tenth = time.Second, time.Second / 10
	for i, want := range []time.Duration{
		0, second, second, second, // the command is shown for a second
		second + longest, second + longest + second, second + longest + second, second + longest + second,
		2*second + longest + tenth, 2*second + longest + 3*tenth, 2*second + longest + 3*tenth,
		// never back
		3*second + longest, 3*second + longest,
		3*second + longest + reading, 3*second + longest + reading,
	} {
		if got := r.lines[i].at; got != want {
			t.Errorf("%q came at %s, want %s", r.lines[i].text, got, want)
		}
	}
	if got := r.still(); r.lines[got-1].text != "  ✓ after 1.0 s" {
		t.Errorf("where nothing moves, %q is the last line", r.lines[got-1].text)
	}
}

func TestLongLinesGoOn(t *testing.T) {
	r := Parse("$ make demo\n" + strings.Repeat("ä", columns+1))
	if len(r.lines) != 3 || r.lines[2].text != "ä" || r.lines[1].at != r.lines[2].at {
		t.Errorf("%v", r.lines)
	}
}
