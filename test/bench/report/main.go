// Command report runs the benchmarks and writes what they measured into
// docs/reference/performance.md, its plots, and the README's table. It is run by
// `make bench-all`, and is a module of its own, because the library that draws is
// nothing that users of this module should need.
//
// What a subject's benchmarks recorded is kept in docs/reference/performance, a
// file each. The page, the plots and the README's figures are made from these
// files alone, and TestDocumentPerformance holds them to it. No figure is ever made
// up: where nothing was recorded, the page has a dash, and the README keeps what it
// says.
//
// Run its tests with -count=1, as "make performance" does: the files that they
// compare lie outside of this module, and go test doesn't notice when they change.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
)

func main() {
	tree := flag.String("tree", ".", "folder of the checkout")
	only := flag.String("only", "", "subjects to measure, separated by commas; all if empty")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *tree, *only); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

// run measures, keeps and writes. What was measured is kept even if a subject
// failed, whose old records stay.
func run(ctx context.Context, tree, only string) error {
	tree, err := filepath.Abs(tree)
	if err != nil {
		return err
	}
	subjects, err := subjects(tree)
	if err != nil {
		return err
	}
	subjects, err = chosen(subjects, only)
	if err != nil {
		return err
	}
	failed := measure(ctx, tree, subjects)
	files, err := documents(tree)
	if err != nil {
		return errors.Join(failed, err)
	}
	if err := writeFiles(tree, files); err != nil {
		return errors.Join(failed, err)
	}
	fmt.Printf("\nwritten: %s, its plots, and the figures in README.md\n", page)
	return failed
}
