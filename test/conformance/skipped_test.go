package conformance_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/test/testenv/complete"
)

// TestWithoutTheDescription: nobody else has it, so elsewhere these tests are skipped, also in CI.
func TestWithoutTheDescription(t *testing.T) {
	for promise, want := range map[string]string{"": "--- SKIP: TestSurface", "1": "--- FAIL: TestSurface"} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSurface$", "-test.v")
		cmd.Env = append(slices.DeleteFunc(os.Environ(), func(pair string) bool {
			return strings.HasPrefix(pair, specVariable+"=")
		}), "CI=true", complete.Variable+"="+promise)
		out, err := cmd.CombinedOutput()
		if text := string(out); !strings.Contains(text, want) || !strings.Contains(text, specVariable+" is not set") {
			t.Errorf("%s=%q: %v, want %s and the reason:\n%s", complete.Variable, promise, err, want, text)
		}
	}
}
