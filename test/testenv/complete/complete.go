// Package complete is for tests that need more than Go: root, a program, control groups of version
// 1, the description of the cloud's API. On a machine that lacks it such a test is skipped, with a
// message that names what is missing. But a run that always skips proves nothing, so in one place,
// which promises to leave nothing out, the same is a failure.
//
// It must never guess whether the promise was made: .ci/run makes it, depending on the files beside
// the checkout; a laptop, a fork and the forge's machines don't.
package complete

import (
	"os"
	"testing"
)

// Variable promises that nothing is left out, if it has any value.
const Variable = "UNDERLAY_CI_COMPLETE"

// Promised reports whether no test may be skipped.
func Promised() bool { return os.Getenv(Variable) != "" }

// Skip ends a test that lacks a requirement: as skipped, or as failed if no test may be skipped.
// The text missing names the requirement and how to install it.
func Skip(t testing.TB, missing string) {
	t.Helper()
	if Promised() {
		t.Fatalf("%s; and %s promises that no test is left out", missing, Variable)
	}
	t.Skip(missing)
}
