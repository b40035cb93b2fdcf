package main

import (
	"errors"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"testing"
)

// Each mutant's text occurs once in its file, its replacement is valid Go, and it has a reason for
// the guard: no test can catch a mutant that doesn't build.
func TestTheTableIsInStepWithTheCode(t *testing.T) {
	names := map[string]bool{}
	for _, m := range mutants() {
		t.Run(m.name, func(t *testing.T) {
			if names[m.name] || m.why == "" || m.tests == "" || m.run == "" {
				t.Errorf("want a name of its own, a reason, and tests to run: %+v", m)
			}
			names[m.name] = true
			source, err := os.ReadFile(filepath.Join("../../..", m.file))
			if err != nil {
				t.Fatal(err)
			}
			broken, err := m.apply(source)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := parser.ParseFile(token.NewFileSet(), m.file, broken, 0); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(filepath.Join("../../..", m.tests)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestOnlyAFailingTestCatchesAMutant(t *testing.T) {
	exit := errors.New("exit status 1")
	for _, c := range []struct {
		name, output string
		failed, late error
		want         string
	}{
		{"a test fails", "--- FAIL: TestX", exit, nil, ""},
		{"a test panics", "panic: index out of range", exit, nil, ""},
		{"all pass", "ok", nil, nil, "SURVIVED"},
		{"there is none", "ok [no tests to run]", nil, nil, "NO TEST"},
		{"it isn't built", "undefined: x\nFAIL x [build failed]", exit, nil, "NOT BUILT"},
		{"it takes too long", "--- FAIL: TestX", exit, errors.New("deadline"), "TIMED OUT"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := ""
			if err := verdict([]byte(c.output), c.failed, c.late); err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("verdict %q, want %q", got, c.want)
			}
		})
	}
}
