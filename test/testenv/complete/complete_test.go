package complete_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/test/testenv/complete"
)

// again makes this binary run one of its tests in a process of its own.
const again = "UNDERLAY_COMPLETE_AGAIN"

func TestSkip(t *testing.T) {
	if os.Getenv(again) != "" {
		complete.Skip(t, "no moon: wait for one")
		t.Fatal("the test went on")
	}
	for promise, want := range map[string]string{"": "--- SKIP: TestSkip", "1": "--- FAIL: TestSkip"} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSkip$", "-test.v")
		cmd.Env = append(os.Environ(), again+"=1", complete.Variable+"="+promise)
		out, err := cmd.CombinedOutput()
		text := string(out)
		if failed := err != nil; failed != (promise != "") || !strings.Contains(text, want) ||
			!strings.Contains(text, "no moon: wait for one") || strings.Contains(text, "went on") {
			t.Errorf("%s=%q: %v, want %s and the reason:\n%s", complete.Variable, promise, err, want, text)
		}
	}
}
