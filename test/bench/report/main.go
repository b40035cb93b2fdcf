// Command report runs the benchmarks and writes their results into docs/reference/performance.md,
// its plots, and the README's table. It is run by `make bench-all`, and is a module of its own,
// because users of the main module should not need the plotting library.
//
// The records of a subject's benchmarks are kept in docs/reference/performance, a file each. The
// page, the plots and the README's figures are generated from these files alone, which
// TestDocumentPerformance checks. No figure is ever invented: where nothing was recorded, the page
// has a dash, and the README keeps its text.
//
// Run its tests with -count=1, as "make performance" does: the files that they compare are outside
// of this module, and go test doesn't notice their changes.
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

// run measures, records and writes. The measurements are kept even if a subject failed; its old
// records remain.
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
