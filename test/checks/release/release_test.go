package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/elf"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const underlay = "../../.."

const changelog = `# Changelog

## [Unreleased]

### Added

- What comes next.

## [0.2.0] - 2026-12-01

### Fixed

- What was wrong in the first.

## [0.1.0] - 2026-11-01

- The first.

[0.2.0]: https://example.org/0.2.0
`

// repository is one with the script and a program.
type repository struct{ folder string }

func newRepository(t *testing.T) repository {
	t.Helper()
	r := repository{t.TempDir()}
	r.takeOver(t, "", ".ci/release", "deploy/chart/Chart.yaml")
	if err := os.CopyFS(filepath.Join(r.folder, ".ci/attest"), os.DirFS(underlay+"/.ci/attest")); err != nil {
		t.Fatal(err)
	}
	r.write(t, "CHANGELOG.md", changelog)
	r.write(t, ".gitignore", "/dist/\n")
	mod, sum := dependency(t)
	r.write(t, "go.mod", "module example.org/program\n\ngo 1.26.0\n\n"+mod)
	r.write(t, "go.sum", sum)
	r.write(t, "cmd/program/main.go", "package main\n\nimport \"golang.org/x/sys/unix\"\n\nfunc main() { unix.Getpid() }\n")
	r.write(t, "deploy/chart/templates/object.yaml", "version: 1\n")
	r.git(t, "init", "--quiet")
	r.commit(t)
	return r
}

// takeOver copies files of this tree, below a folder.
func (r repository) takeOver(t *testing.T, below string, names ...string) {
	t.Helper()
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(underlay, name))
		if err != nil {
			t.Fatal(err)
		}
		r.write(t, below+name, string(content))
	}
}

func (r repository) write(t *testing.T, name, content string) {
	t.Helper()
	path := filepath.Join(r.folder, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
}

func (r repository) commit(t *testing.T) {
	t.Helper()
	r.git(t, "add", "--all")
	r.git(t, "commit", "--quiet", "--message", "a commit")
}

// environment isolates git from the machine's own configuration, and sets a fixed date, so that two
// repositories have the same commits.
func environment() []string {
	return append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_AUTHOR_DATE=2026-12-01T12:00:00+05:00",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org", "GIT_COMMITTER_DATE=2026-12-01T12:00:00+05:00")
}

func (r repository) git(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir, cmd.Env = r.folder, environment()
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, output)
	}
}

// head is the commit that is checked out.
func (r repository) head(t *testing.T) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", "rev-parse", "HEAD")
	cmd.Dir, cmd.Env = r.folder, environment()
	output, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(output))
}

func (r repository) release(t *testing.T, args ...string) (output string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(r.folder, ".ci/release"), args...)
	cmd.Env = environment()
	var both bytes.Buffer
	cmd.Stdout, cmd.Stderr = &both, &both
	err = cmd.Run()
	return both.String(), err
}

func TestRefuses(t *testing.T) {
	for _, c := range []struct {
		name    string
		prepare func(*testing.T, repository)
		args    []string
		says    string
	}{
		{"a commit without a tag", nil, nil, "has no tag"},
		{"a version that is none", nil, []string{"0.2.0"}, "not semantic"},
		{"a tag that is no version", func(t *testing.T, r repository) { r.git(t, "tag", "v2") }, nil, "not semantic"},
		{"a version without a section", nil, []string{"v0.3.0"}, "add a section '## [0.3.0]"},
		{"a version that begins like another", nil, []string{"v0.2"}, "not semantic"},
		{"an empty section", func(t *testing.T, r repository) {
			r.write(t, "CHANGELOG.md", strings.Replace(changelog, "- The first.\n", "", 1))
			r.commit(t)
		}, []string{"v0.1.0"}, "has no section for v0.1.0"},
		{"a changed file", func(t *testing.T, r repository) { r.write(t, "go.mod", "module other\n") }, []string{"v0.2.0"}, "M go.mod"},
		{"a file that git doesn't know", func(t *testing.T, r repository) { r.write(t, "cmd/program/more.go", "package main\n") }, []string{"v0.2.0"}, "cmd/program/more.go"},
		{"another commit's version", func(t *testing.T, r repository) {
			r.git(t, "tag", "v0.1.0")
			r.write(t, "more", "")
			r.commit(t)
		}, []string{"v0.1.0"}, "v0.1.0 is the tag of commit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRepository(t)
			if c.prepare != nil {
				c.prepare(t, r)
			}
			output, err := r.release(t, append([]string{"-n"}, c.args...)...)
			if err == nil || !strings.Contains(output, c.says) {
				t.Errorf("%v: %s\nwant %q", err, output, c.says)
			}
		})
	}
}

func TestPrintsPlannedSteps(t *testing.T) {
	r := newRepository(t)
	r.git(t, "tag", "v0.2.0")
	output, err := r.release(t, "-n")
	if err != nil || !strings.Contains(output, "release v0.2.0 of commit") || !strings.Contains(output, "program for linux/amd64 linux/arm64, and the chart") {
		t.Errorf("%v: %s", err, output)
	}
	if _, err := os.Stat(filepath.Join(r.folder, "dist")); !os.IsNotExist(err) {
		t.Errorf("it left something in dist: %v", err)
	}
}

func (r repository) dist(t *testing.T) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(r.folder, "dist"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join(r.folder, "dist", entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[entry.Name()] = content
	}
	return files
}

// The builder in the release's statement, and the images that were pushed: the chart installs them
// by digest, and the statement is about them too.
const builder = "https://forge.example/a-workflow"

func images() map[string]string {
	return map[string]string{
		"registry.example/underlay-ccm":   strings.Repeat("c", 64),
		"registry.example/underlay-agent": strings.Repeat("a", 64),
	}
}

// TestRelease builds a release twice: two checkouts of one commit, in different folders, result in
// the same files. It also checks their content.
func TestRelease(t *testing.T) {
	t.Setenv("RELEASE_BUILDER", builder)
	list := filepath.Join(t.TempDir(), "images")
	var lines string
	for name, digest := range images() {
		lines += name + " sha256:" + digest + "\n"
	}
	if err := os.WriteFile(list, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	var r repository
	var made [2]map[string][]byte
	for i := range made {
		r = newRepository(t)
		r.takeOver(t, "", pluginFile, "LICENSE", "deploy/chart/values.yaml")
		r.write(t, "cmd/underlayctl/main.go", "package main\n\nfunc main() {}\n")
		r.commit(t)
		r.git(t, "tag", "v0.2.0")
		r.write(t, ".git/info/exclude", "*~\n")
		r.write(t, "deploy/chart/templates/object.yaml~", "an editor's")
		r.write(t, "dist/left-over", "of an earlier release")
		if output, err := r.release(t, "-i", list); err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "SHA256SUMS")
		check.Dir = filepath.Join(r.folder, "dist")
		if output, err := check.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, output)
		}
		made[i] = r.dist(t)
	}
	files := made[0]
	names := strings.Fields(`CHANGELOG.md SHA256SUMS
		kubectl-underlay-darwin-amd64.tar.gz kubectl-underlay-darwin-arm64.tar.gz
		kubectl-underlay-linux-amd64.tar.gz kubectl-underlay-linux-arm64.tar.gz
		program-linux-amd64 program-linux-amd64.cdx.json program-linux-arm64 program-linux-arm64.cdx.json
		provenance.intoto.json underlay-0.2.0.tgz underlay.yaml
		underlayctl-linux-amd64 underlayctl-linux-amd64.cdx.json
		underlayctl-linux-arm64 underlayctl-linux-arm64.cdx.json`)
	if found := slices.Sorted(maps.Keys(files)); !slices.Equal(found, names) {
		t.Errorf("in the release are %v, want %v", found, names)
	}
	for name, content := range files {
		if name != "SHA256SUMS" && !strings.Contains(string(files["SHA256SUMS"]), "  "+name+"\n") {
			t.Errorf("%s has no checksum", name)
		}
		if !bytes.Equal(content, made[1][name]) {
			t.Errorf("%s differs from one checkout to the other", name)
		}
	}
	for name, machine := range map[string]elf.Machine{"program-linux-amd64": elf.EM_X86_64, "program-linux-arm64": elf.EM_AARCH64} {
		program, err := elf.NewFile(bytes.NewReader(files[name]))
		if err != nil || program.Machine != machine {
			t.Errorf("%s is for %+v: %v", name, program, err)
		}
	}
	if notes := string(files["CHANGELOG.md"]); strings.TrimSpace(notes) != "### Fixed\n\n- What was wrong in the first." {
		t.Errorf("the notes are %q", notes)
	}
	t.Run("bills of materials", func(t *testing.T) { hasBillsOfMaterials(t, files) })
	t.Run("provenance", func(t *testing.T) { checkProvenance(t, r.head(t), files) })
	t.Run("plugin", func(t *testing.T) { hasThePlugin(t, files) })
	t.Run("chart", func(t *testing.T) { hasItsChart(t, files) })

	status := exec.CommandContext(t.Context(), "git", "status", "--porcelain")
	status.Dir, status.Env = r.folder, environment()
	if output, err := status.CombinedOutput(); err != nil || len(output) > 0 {
		t.Errorf("%v: the tree has changed: %s", err, output)
	}
	if err := os.WriteFile(list, []byte("registry.example/underlay-ccm v0.2.0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if output, err := r.release(t, "-i", list); err == nil || !strings.Contains(output, "sha256:") {
		t.Errorf("an image without a digest: %v: %s", err, output)
	}
}

// hasItsChart: the chart of a release has its version, and installs images of it.
func hasItsChart(t *testing.T, release map[string][]byte) {
	files := unpacked(t, release["underlay-0.2.0.tgz"])
	if names := slices.Sorted(maps.Keys(files)); !slices.Equal(names, []string{"underlay/Chart.yaml", "underlay/templates/object.yaml", "underlay/values.yaml"}) {
		t.Errorf("the chart has %v", names)
	}
	for file, lines := range map[string][]string{
		"underlay/Chart.yaml":            {"apiVersion: v2", "name: underlay", "version: 0.2.0", "appVersion: v0.2.0"},
		"underlay/templates/object.yaml": {"version: 1"},
		"underlay/values.yaml": {
			"  registry: registry.example",
			"  ccmDigest: sha256:" + images()["registry.example/underlay-ccm"],
			"  agentDigest: sha256:" + images()["registry.example/underlay-agent"],
		},
	} {
		for _, line := range lines {
			if !strings.Contains("\n"+string(files[file]), "\n"+line+"\n") {
				t.Errorf("%s has no line %q:\n%s", file, line, files[file])
			}
		}
	}
}

// unpacked returns an archive's files by name, without folders.
func unpacked(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	content, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	reader := tar.NewReader(content)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Uid != 0 || header.Gid != 0 || header.Mode&0o022 != 0 {
			t.Errorf("%s belongs to %d:%d and has mode %o", header.Name, header.Uid, header.Gid, header.Mode)
		}
		if header.Typeflag == tar.TypeDir {
			continue
		}
		if files[header.Name], err = io.ReadAll(reader); err != nil {
			t.Fatal(err)
		}
	}
}

// A release stamps the same version variables as "make build" and the images.
func TestStampsAreTheMakefiles(t *testing.T) {
	stamps := func(file string) []string {
		content, err := os.ReadFile(filepath.Join(underlay, file))
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for _, match := range regexp.MustCompile(`-X (?:\$(?:\(STAMP\)|stamp)|k8s.io/component-base/version)\.(\w+)=`).FindAllStringSubmatch(string(content), -1) {
			found = append(found, match[1])
		}
		if len(found) < 3 || !regexp.MustCompile(`k8s\.io/component-base/version(\n|\.)`).Match(content) {
			t.Errorf("%s stamps only %v, or another package", file, found)
		}
		return found
	}
	ours := stamps(".ci/release")
	for _, stamp := range slices.Concat(stamps("Makefile"), stamps("Dockerfile")) {
		if !slices.Contains(ours, stamp) {
			t.Errorf("the Makefile or the Dockerfile stamps %s, a release does not: %v", stamp, ours)
		}
	}
}

// The changelog of this tree has the format that the script parses.
func TestChangelog(t *testing.T) {
	content, err := os.ReadFile(underlay + "/CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	heading := regexp.MustCompile(`^## \[(Unreleased\]|\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?\] - \d{4}-\d\d-\d\d)$`)
	sections := 0
	for line := range strings.Lines(string(content)) {
		if strings.HasPrefix(line, "## ") {
			sections++
			if !heading.MatchString(strings.TrimSpace(line)) {
				t.Errorf("%q is no heading of a version", line)
			}
		}
	}
	if sections == 0 || !strings.Contains(string(content), "## [Unreleased]\n") {
		t.Errorf("%d sections, none is Unreleased", sections)
	}
}
