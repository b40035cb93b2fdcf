package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRunDecidesWhichTestsMayBeSkipped runs CI's script, with fake programs instead of those that
// install and test, in a checkout with and without the description of the cloud's API beside it.
func TestRunDecidesWhichTestsMayBeSkipped(t *testing.T) {
	for name, described := range map[string]bool{"ours": true, "the forge's": false} {
		t.Run(name, func(t *testing.T) {
			r := repository{t.TempDir()}
			r.takeOver(t, "main/", ".ci/run", ".ci/step", ".ci/skipped")
			if described {
				r.write(t, "shared/hetzner/cloud.spec.json", "{}")
			}
			for _, program := range []string{"go", "apt-get"} {
				r.write(t, "bin/"+program, "#!/bin/sh\n")
			}
			r.write(t, "bin/make", "#!/bin/sh\necho \"complete: $UNDERLAY_CI_COMPLETE.\"\necho \"description: $UNDERLAY_CLOUD_SPEC.\"\n.ci/skipped\n")
			cmd := exec.CommandContext(t.Context(), filepath.Join(r.folder, "main/.ci/run"))
			// Independent of the forge's variables and of the caller's.
			cmd.Env = append(environment(), "CI=true", "UNDERLAY_CI_COMPLETE=", "UNDERLAY_CLOUD_SPEC=", "PATH="+r.folder+"/bin:"+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			run, summary, _ := strings.Cut(string(out), "== summary")
			says := map[string]bool{
				"complete: yes.": described, "complete: .": !described,
				"description: " + r.folder + "/main/../shared/hetzner/cloud.spec.json.": described, "description: .": !described,
				"skipped: tests of the simulated cloud by the API's description: UNDERLAY_CLOUD_SPEC names no file": !described,
			}
			for text, want := range says {
				if strings.Contains(run, text) != want {
					t.Errorf("says %q: %t, want %t:\n%s", text, !want, want, out)
				}
			}
			if strings.Contains(summary, "API's description") == described {
				t.Errorf("the summary has what was skipped: %t:\n%s", described, summary)
			}
		})
	}
}
