// Package complete is for tests that need more than Go: root, a program, control groups of
// version 1, the description of the cloud's API. On a machine that lacks it such a test is
// skipped and says what is missing. But a run that always skips proves nothing, so one place
// promises to leave nothing out, and there the same is a failure.
//
// It must never guess whether the promise was given: .ci/run gives it, by what lies beside the
// checkout, and a laptop, a fork and the forge's machines don't.
package complete

import (
	"os"
	"testing"
)

// Variable is the promise that nothing is left out, if it has any value.
const Variable = "UNDERLAY_CI_COMPLETE"

// Promised reports whether nothing may be left out.
func Promised() bool { return os.Getenv(Variable) != "" }

// Skip ends a test that lacks something: as skipped, or as failed where nothing may be left out.
// What it says names what is missing, and how to come by it.
func Skip(t testing.TB, missing string) {
	t.Helper()
	if Promised() {
		t.Fatalf("%s; and %s promises that no test is left out", missing, Variable)
	}
	t.Skip(missing)
}
