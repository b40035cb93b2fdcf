package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const tree = "../../.."

var update = flag.Bool("update", false, "write the page, the plots and the README's figures anew from what is recorded instead of comparing them")

// TestDocumentPerformance: the page, the plots and the README's figures are generated from the
// records, and nothing else.
func TestDocumentPerformance(t *testing.T) {
	files, err := documents(tree)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := writeFiles(tree, files); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(tree, name))
		if err != nil {
			t.Errorf("%v; run \"make generate\"", err)
			continue
		}
		if bytes.Equal(got, want) {
			continue
		}
		if filepath.Ext(name) == ".svg" {
			t.Errorf("%s isn't what is recorded; run \"make generate\"", name)
		} else {
			t.Errorf("%s isn't what is recorded; run \"make generate\":\n%s", name, cmp.Diff(string(got), string(want)))
		}
	}
	for _, name := range stale(tree, files) {
		t.Errorf("%s is of no record; run \"make generate\"", name)
	}
}
