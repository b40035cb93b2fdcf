// Command mutants shows that the tests protect the guards of the code: it breaks one guard at a
// time, in a copy that only the compiler uses (go test -overlay), and runs the tests that must
// notice. `make mutants` runs all of them, in some minutes:
//
//	go run ./test/checks/mutants
//	go run ./test/checks/mutants -only 'quarantine'
//
// A mutant that survives is a guard that can be removed without a failing test. The table is in
// table.txt; its test, which is cheap and part of `make test`, keeps it in step with the code.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// tooLong limits a mutant's test run; a longer one doesn't count as caught.
const tooLong = 5 * time.Minute

func main() {
	only := flag.String("only", "", "a regular expression: run the mutants whose names match")
	verbose := flag.Bool("v", false, "print what the failing test said")
	flag.Parse()
	which, err := regexp.Compile(*only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "-only:", err)
		os.Exit(2)
	}
	survivors := 0
	for _, m := range mutants() {
		if !which.MatchString(m.name) {
			continue
		}
		began := time.Now()
		said, err := m.try(context.Background(), ".")
		result := "caught"
		if err != nil {
			result = err.Error()
			survivors++
		}
		fmt.Printf("%-10s %5.1fs  %s\n", result, time.Since(began).Seconds(), m.name)
		if *verbose || err != nil {
			fmt.Println(excerpt(said))
		}
	}
	if survivors > 0 {
		fmt.Printf("%d mutants were not caught\n", survivors)
		os.Exit(1)
	}
}

// try runs the tests of a mutant and returns their output. The error is why the mutant does not
// count as caught.
func (m mutant) try(ctx context.Context, root string) (said string, err error) {
	root, err = filepath.Abs(root)
	if err != nil {
		return "", err
	}
	original := filepath.Join(root, m.file)
	source, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}
	broken, err := m.apply(source)
	if err != nil {
		return "", err
	}
	folder, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(folder)
	replacement, overlay := filepath.Join(folder, "mutant.go"), filepath.Join(folder, "overlay.json")
	described, err := json.Marshal(map[string]map[string]string{"Replace": {original: replacement}})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(replacement, broken, 0o600); err != nil {
		return "", err
	}
	if err := os.WriteFile(overlay, described, 0o600); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, tooLong)
	defer cancel()
	args := append([]string{"test", "-vet=off", "-count=1", "-failfast", "-overlay", overlay, "-run", m.run, m.tests}, m.args...)
	run := exec.CommandContext(ctx, "go", args...)
	run.Dir = root
	output, failed := run.CombinedOutput()
	return string(output), verdict(output, failed, ctx.Err())
}

// verdict returns why a test run has not caught a mutant; nil: it has.
func verdict(output []byte, failed, late error) error {
	switch {
	case late != nil:
		return fmt.Errorf("TIMED OUT")
	case failed == nil && bytes.Contains(output, []byte("no tests to run")):
		return fmt.Errorf("NO TEST")
	case failed == nil:
		return fmt.Errorf("SURVIVED")
	case !bytes.Contains(output, []byte("--- FAIL")) && !bytes.Contains(output, []byte("panic:")):
		return fmt.Errorf("NOT BUILT")
	default:
		return nil
	}
}

// excerpt is the beginning of a test's output.
func excerpt(said string) string {
	lines := strings.Split(strings.TrimSpace(said), "\n")
	if len(lines) > 12 {
		lines = append(lines[:12], "…")
	}
	return "    " + strings.Join(lines, "\n    ")
}
