package deploy

import (
	"bytes"
	"debug/elf"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/underlay-ccm/underlay/test/testenv/dockerfile"
)

// TestImages compiles as the Dockerfile does, and tries the result.
func TestImages(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the programs from scratch, which takes minutes the first time")
	}
	build := readDockerfile(t)["build"]
	out := compile(t, build)
	for _, program := range []string{"underlay-ccm", "underlay-agent", "hcloud-sim"} {
		t.Run(program+" is static", func(t *testing.T) { isStatic(t, filepath.Join(out, program)) })
	}
	plugins := compile(t, readDockerfile(t)["plugins"])
	for _, plugin := range cniPlugins(t) {
		t.Run(plugin+" is static", func(t *testing.T) { isStatic(t, filepath.Join(plugins, plugin)) })
	}
	ccm := filepath.Join(out, "underlay-ccm")
	agent := filepath.Join(out, "underlay-agent")
	t.Run("underlay-ccm tells its version", func(t *testing.T) { tellsItsVersion(t, ccm, build) })
	t.Run("underlay-agent tells its version", func(t *testing.T) { tellsItsVersion(t, agent, build) })
	t.Run("underlay-ccm has the Deployment's flags", func(t *testing.T) { hasFlags(t, ccm) })
	t.Run("hcloud-sim starts", func(t *testing.T) {
		if text := run(t, filepath.Join(out, "hcloud-sim"), "--help"); !strings.Contains(text, "--listen") {
			t.Errorf("its help doesn't know the flag of its ENTRYPOINT:\n%s", text)
		}
	})
	t.Run("underlay-ccm works with what it is given", func(t *testing.T) { worksWithWhatItIsGiven(t, ccm) })
	t.Run("underlay-agent works with what it is given", func(t *testing.T) { agentsWorkWithWhatTheyAreGiven(t, ccm, agent) })
}

// compile runs a stage's build lines and returns the folder that stands for /out/.
func compile(t *testing.T, build dockerfile.Stage) string {
	t.Helper()
	out := t.TempDir()
	if err := build.Compile(t.Context(), repository, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// isStatic is about images without a loader and without libraries.
func isStatic(t *testing.T, program string) {
	file, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, segment := range file.Progs {
		if segment.Type == elf.PT_INTERP {
			t.Error("it needs an interpreter")
		}
	}
	// Without a dynamic section there are none, which is no error.
	libraries, err := file.ImportedLibraries()
	if err != nil || len(libraries) > 0 {
		t.Errorf("it needs the libraries %v (error: %v)", libraries, err)
	}
}

func tellsItsVersion(t *testing.T, program string, build dockerfile.Stage) {
	env, err := build.Environment()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(env, func(v string) bool { return strings.HasPrefix(v, "VERSION=") })
	if i < 0 {
		t.Fatal("the Dockerfile has no build argument VERSION")
	}
	version := strings.TrimPrefix(env[i], "VERSION=")
	want := filepath.Base(program) + " " + version + " "
	if text := run(t, program, "--version"); !strings.HasPrefix(text, want) {
		t.Errorf("it says %q, want that to begin with %q", text, want)
	}
	if text := run(t, program, "--version=raw"); !strings.Contains(text, "unknown") {
		t.Errorf("it says %q, want the commit as the Dockerfile's default has it", text)
	}
}

func hasFlags(t *testing.T, program string) {
	known := regexp.MustCompile(`--[a-z0-9-]+`).FindAllString(run(t, program, "--help"), -1)
	for flag := range flagsOf(t, only[*appsv1.Deployment](t, shipped(t)).Spec.Template.Spec.Containers[0].Args) {
		if !slices.Contains(known, flag) {
			t.Errorf("its help doesn't know %s", flag)
		}
	}
}

// run returns what a program prints that ends by itself, with nothing in its
// environment.
func run(t *testing.T, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = []string{"PATH=/nonexistent"}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %v: %v\n%s", filepath.Base(program), args, err, errs.String())
	}
	return out.String()
}
