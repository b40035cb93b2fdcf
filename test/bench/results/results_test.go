package results_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/underlay-ccm/underlay/test/bench/results"
)

// Records are read again in order; without a folder nothing is written anywhere.
func TestRecordedIsRead(t *testing.T) {
	folder := t.TempDir()
	figure := results.Figure{Scenario: "s", Contender: "underlay", Quantity: "q", Unit: "ms", Value: 1.5, Source: "a book, 2026"}
	line := results.Line{Plot: "p", Contender: "underlay", X: "seconds", Y: "Nodes", Points: [][2]float64{{0, 1}, {2, 3}}}
	note := results.Note{Quantity: "q", Text: "what it means"}
	version := results.Version{Program: "peer", Version: "v1"}
	record := func() {
		results.Record(t, figure, figure)
		results.Draw(t, line)
		results.Explain(t, note)
		results.Compare(t, version)
	}
	t.Setenv(results.Folder, "")
	record()
	t.Setenv(results.Folder, folder)
	record()

	file, err := os.Open(filepath.Join(folder, results.File))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	got, err := results.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	want := []results.Entry{
		{Figure: &figure}, {Figure: &figure}, {Line: &line}, {Note: &note}, {Version: &version},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestUnreadableResults(t *testing.T) {
	for name, content := range map[string]string{
		"an unknown kind":  `{"note":{"text":"x"}}` + "\n" + `{"word":{}}`,
		"an unknown field": `{"note":{"text":"x"}}` + "\n" + `{"figure":{"worth":1}}`,
		"no kind":          `{"note":{"text":"x"}}` + "\n" + `{}`,
		"half a line":      `{"note":{"text":"x"}}` + "\n" + `{"figure":{`,
	} {
		if _, err := results.Read(strings.NewReader(content)); err == nil || !strings.Contains(err.Error(), "result 2") {
			t.Errorf("%s: %v, want an error that names result 2", name, err)
		}
	}
}

func TestLibrary(t *testing.T) {
	if v := results.Library(t, "github.com/google/go-cmp"); !strings.HasPrefix(v.Version, "v0.") {
		t.Errorf("%+v, want the version that go.mod has", v)
	}
}
