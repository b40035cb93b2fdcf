//go:build linux

package machine_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/test/testenv/complete"
)

// TestWithoutControlGroups runs a test of machines, and the build of their programs, where no
// cgroup of version 1 is mounted, as on most of today's distributions.
func TestWithoutControlGroups(t *testing.T) {
	build := t.TempDir() + "/build"
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", build, "./build").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const missing = "no cgroup v1 hierarchy"
	run := func(promise string, command ...string) (string, bool) {
		why := "not root"
		if os.Geteuid() == 0 {
			why = missing
			// The mounts are visible only in the new namespace.
			command = append([]string{
				"unshare", "--mount", "sh", "-ec",
				`for mount in $(awk '$3 == "cgroup" {print $2}' /proc/mounts); do umount --lazy "$mount"; done; exec "$@"`, "-",
			}, command...)
		}
		cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
		cmd.Env = append(os.Environ(), "CI=true", complete.Variable+"="+promise)
		out, err := cmd.CombinedOutput()
		if !strings.Contains(string(out), why) {
			t.Errorf("%s=%q: %v, and no word of %q:\n%s", complete.Variable, promise, err, why, out)
		}
		return string(out), err == nil
	}
	const name = "TestAMachineIsAPlaceOfItsOwn"
	for promise, want := range map[string]string{"": "--- SKIP: " + name, "1": "--- FAIL: " + name} {
		if out, _ := run(promise, os.Args[0], "-test.run=^"+name+"$", "-test.v"); !strings.Contains(out, want) {
			t.Errorf("%s=%q: want %s:\n%s", complete.Variable, promise, want, out)
		}
		if out, ok := run(promise, build); ok != (promise == "") || strings.Contains(out, "building") {
			t.Errorf("%s=%q: building their programs ends well: %t\n%s", complete.Variable, promise, ok, out)
		}
	}
}
