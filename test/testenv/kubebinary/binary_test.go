package kubebinary

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/modfile"
)

func TestHashCoversTheBinarysSources(t *testing.T) {
	source := t.TempDir()
	build := kubeBuild{program: controlPlane(), source: source, version: "v1.2.3", platform: "go1 linux amd64"}
	write(t, source, "main.go", "package main")
	write(t, source, "go.mod", "module m")
	first := hash(t, build)

	if again := hash(t, build); again != first {
		t.Errorf("hash %s, then %s, of the same thing", first, again)
	}
	write(t, source, "kube", "a binary that somebody built in the folder")
	if got := hash(t, build); got != first {
		t.Error("a file that is no source changed the hash")
	}
	write(t, source, "main_test.go", "package main")
	if got := hash(t, build); got != first {
		t.Error("a test changed the hash")
	}
	for what, other := range map[string]kubeBuild{
		"version":  {program: build.program, source: source, version: "v1.2.4", platform: build.platform},
		"platform": {program: build.program, source: source, version: build.version, platform: "go2 linux amd64"},
	} {
		if hash(t, other) == first {
			t.Errorf("another %s left the hash as it was", what)
		}
	}
	if err := os.Mkdir(filepath.Join(source, "node"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, source, "node/main.go", "package main")
	if hash(t, build) != first {
		t.Error("another program changed the hash")
	}
	build.program = node()
	first = hash(t, build)
	write(t, source, "node/main.go", "package main // more")
	if hash(t, build) == first {
		t.Error("another file of the program left the hash as it was")
	}
	first = hash(t, build)
	write(t, source, "go.sum", "more")
	if hash(t, build) == first {
		t.Error("another file left the hash as it was")
	}
}

func TestBuildIsWholeOrAbsent(t *testing.T) {
	source := t.TempDir()
	build := kubeBuild{program: controlPlane(), source: source, version: "v1.2.3"}
	write(t, source, "go.mod", "module m\n\ngo 1.26\n")
	write(t, source, "main.go", "package main\n\nfunc main() { undefined() }\n")

	cache := t.TempDir()
	folder := filepath.Join(cache, "kube-1")
	var progress bytes.Buffer
	err := build.into(t.Context(), folder, &progress)
	if err == nil || !strings.Contains(err.Error(), "undefined: undefined") {
		t.Errorf("error of a build that cannot work: %v; want what the compiler said", err)
	}
	if left := names(t, cache); len(left) != 0 {
		t.Errorf("a failed build left %v", left)
	}

	write(t, source, "main.go", "package main\n\nfunc main() { print(\"hello\") }\n")
	if err := build.into(t.Context(), folder, &progress); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(filepath.Join(folder, "kube")).CombinedOutput()
	if err != nil || string(out) != "hello" {
		t.Errorf("the built program says %q, %v", out, err)
	}
	if left := names(t, cache); len(left) != 1 {
		t.Errorf("beside the result there is more: %v", left)
	}
	if !strings.Contains(progress.String(), "kube: built in ") {
		t.Errorf("progress %q, want its end", &progress)
	}
}

func TestLockIsHeldByOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	var progress bytes.Buffer
	unlock, err := Lock(t.Context(), path, "taken", &progress)
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Lock(short, path, "taken", &progress); err == nil {
		t.Error("locked twice")
	}
	if !strings.Contains(progress.String(), "waiting") {
		t.Errorf("progress %q, want it said that it waits", &progress)
	}
	unlock()
	unlock, err = Lock(t.Context(), path, "taken", &progress)
	if err != nil {
		t.Fatalf("lock again after unlock: %v", err)
	}
	unlock()
}

func TestSourceIsFound(t *testing.T) {
	t.Chdir(t.TempDir()) // the working directory does not matter
	source, err := Source()
	if err != nil {
		t.Fatal(err)
	}
	build, err := newKubeBuild(t.Context(), source, node())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(build.version, "v1.") || !strings.HasPrefix(build.platform, "go1.") {
		t.Errorf("version %q, platform %q; want Kubernetes' and Go's", build.version, build.platform)
	}
	flags := strings.Join(build.arguments(), " ")
	if want := "version.gitVersion=" + build.version; !strings.Contains(flags, want) {
		t.Errorf("arguments %s, want %s in them", flags, want)
	}
}

// TestSpecsAreTheControlPlanes: upstream's specs have the version of the programs that they test,
// and both modules use the same versions of common requirements, so that these are compiled once.
func TestSpecsAreTheControlPlanes(t *testing.T) {
	source, err := Source()
	if err != nil {
		t.Fatal(err)
	}
	versions := func(folder string) map[string]string {
		t.Helper()
		content, err := os.ReadFile(filepath.Join(source, folder, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		mod, err := modfile.ParseLax(folder, content, nil)
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]string{}
		for _, r := range mod.Require {
			found[r.Mod.Path] = r.Mod.Version
		}
		for _, r := range mod.Replace {
			found["replace "+r.Old.Path] = r.New.Version
		}
		return found
	}
	control, tests := versions("."), versions("e2e")
	if tests["k8s.io/kubernetes"] == "" {
		t.Error("test/kube/e2e doesn't require k8s.io/kubernetes")
	}
	for path, version := range tests {
		if other := control[path]; other != "" && other != version {
			t.Errorf("%s is %s in test/kube and %s in test/kube/e2e", path, other, version)
		}
	}
	for _, p := range []program{specs(), agnhost(), outOfWindow()} {
		build, err := newKubeBuild(t.Context(), source, p)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(build.source) != "e2e" || build.version != control["k8s.io/kubernetes"] {
			t.Errorf("%s is built in %s, version %s", p.name, build.source, build.version)
		}
	}
}

func hash(t *testing.T, build kubeBuild) string {
	t.Helper()
	sum, err := build.hash()
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, entry := range entries {
		all = append(all, entry.Name())
	}
	return all
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
