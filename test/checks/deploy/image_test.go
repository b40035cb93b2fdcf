package deploy

import (
	"bytes"
	"debug/elf"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
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

// compile runs a stage's build lines over what .dockerignore lets through, if the
// stage takes that, and returns the folder that stands for /out/.
func compile(t *testing.T, build stage) string {
	t.Helper()
	context, out := t.TempDir(), t.TempDir()
	if slices.Contains(build.all("COPY"), ". .") {
		copyContext(t, context)
	}
	lines := build.buildLines()
	if len(lines) == 0 {
		t.Fatalf("stage %s builds nothing", build.name)
	}
	for _, line := range lines {
		if strings.Count(line, "-o /out/ ") != 1 {
			t.Fatalf("RUN %s\ndoesn't write to /out/, from where images take their programs", line)
		}
		cmd := exec.CommandContext(t.Context(), "sh", "-ec", strings.Replace(line, "-o /out/ ", "-o "+out+"/ ", 1))
		cmd.Dir = context
		cmd.Env = append(os.Environ(), build.environment(t)...)
		if output, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("RUN %s\n%v\n%s", line, err, output)
		}
	}
	return out
}

// copyContext copies the files that a build would be sent.
func copyContext(t *testing.T, to string) {
	t.Helper()
	content, err := os.ReadFile(repository + "/.dockerignore")
	if err != nil {
		t.Fatal(err)
	}
	rules := ignoreRules(string(content))
	err = filepath.WalkDir(repository, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(repository, file)
		if err != nil || name == "." || rules.ignored(filepath.ToSlash(name)) {
			if err == nil && name != "." && entry.IsDir() {
				return fs.SkipDir
			}
			return err
		}
		target := filepath.Join(to, name)
		if entry.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		return os.WriteFile(target, content, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// ignoreRules are the lines of a .dockerignore, of which the last that matches
// decides.
func ignoreRules(content string) ignore {
	var rules ignore
	for line := range strings.Lines(content) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			rules = append(rules, line)
		}
	}
	return rules
}

type ignore []string

// ignored decides by the rules that .dockerignore here uses: names at the root,
// and **/ for names anywhere. A rule for a folder counts for all that is in it.
func (rules ignore) ignored(name string) bool {
	result := false
	for _, rule := range rules {
		pattern, keep := strings.CutPrefix(rule, "!")
		matches := false
		parts := strings.Split(name, "/")
		if base, anywhere := strings.CutPrefix(pattern, "**/"); anywhere {
			matches = slices.ContainsFunc(parts, func(part string) bool { ok, _ := path.Match(base, part); return ok })
		} else {
			matches, _ = path.Match(pattern, parts[0])
		}
		if matches {
			result = !keep
		}
	}
	return result
}

func TestIgnore(t *testing.T) {
	rules := ignoreRules("# all but code\n*\n!go.mod\n!cmd\n**/*_test.go\n**/testdata\n")
	for name, want := range map[string]bool{
		"go.mod": false, "cmd": false, "cmd/a/main.go": false,
		".git": true, "docs": true, "docs/cmd": true,
		"cmd/a/main_test.go": true, "cmd/a/testdata": true, "cmd/a/testdata/b": true,
	} {
		if got := rules.ignored(name); got != want {
			t.Errorf("%s is ignored: %t, want %t", name, got, want)
		}
	}
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

func tellsItsVersion(t *testing.T, program string, build stage) {
	env := build.environment(t)
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
