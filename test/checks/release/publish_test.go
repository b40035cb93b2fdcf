package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const (
	workflowFile = underlay + "/.github/workflows/release.yaml"
	chartDigest  = "sha256:cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd"
	digest       = "sha256:abababababababababababababababababababababababababababababababab"
)

// forge is a machine with fake programs that record their calls instead of pushing, signing and
// publishing.
type forge struct {
	repository
	bin string
}

func newForge(t *testing.T) forge {
	t.Helper()
	f := forge{newRepository(t), t.TempDir()}
	f.takeOver(t, "", ".ci/publish", "deploy/chart/values.yaml")
	f.commit(t)
	bin := repository{f.bin}
	for _, program := range []string{"cosign", "gh"} {
		bin.write(t, program, "#!/bin/sh\necho "+program+" \"$@\" >>"+f.bin+"/calls\n")
	}
	bin.write(t, "helm", "#!/bin/sh\necho helm \"$@\" >>"+f.bin+"/calls\necho 'Pushed: registry.example/a/charts/underlay:0.2.0' >&2\necho 'Digest: "+chartDigest+"' >&2\n")
	// Its metadata have buildx' format.
	bin.write(t, "docker", "#!/bin/sh\necho docker \"$@\" >>"+f.bin+"/calls\n"+
		"while [ \"$1\" != --metadata-file ]; do shift; done\n"+
		"printf '{\\n  \"containerimage.digest\": \""+digest+"\",\\n  \"image.name\": \"a\"\\n}' >\"$2\"\n")
	return f
}

// publish returns the script's output, and the calls.
func (f forge) publish(t *testing.T, version string) (output string, calls []string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(f.folder, ".ci/publish"), version)
	cmd.Env = append(environment(), "PATH="+f.bin+":"+os.Getenv("PATH"), "REGISTRY=registry.example/a")
	text, err := cmd.CombinedOutput()
	content, _ := os.ReadFile(f.bin + "/calls") // no call yet is fine too
	return string(text), slices.Collect(strings.Lines(string(content))), err
}

func TestPublishes(t *testing.T) {
	f := newForge(t)
	f.git(t, "tag", "v0.2.0")
	output, calls, err := f.publish(t, "v0.2.0")
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	var order []string
	for _, call := range calls {
		words := strings.Fields(call)
		order = append(order, words[0]+" "+words[1])
	}
	want := []string{"docker buildx", "docker buildx", "docker buildx", "helm push", "cosign sign", "cosign sign", "cosign sign", "cosign sign", "cosign sign-blob", "gh release"}
	if !slices.Equal(order, want) {
		t.Fatalf("calls are\n%s", strings.Join(calls, ""))
	}
	for i, image := range []string{"underlay-ccm", "underlay-agent", "hcloud-sim"} {
		name := "registry.example/a/" + image
		for _, part := range []string{" --push ", " --tag " + name + ":v0.2.0 ", " --target " + strings.TrimPrefix(image, "underlay-") + " ", " VERSION=v0.2.0 ", " COMMIT=" + f.head(t) + " "} {
			if !strings.Contains(calls[i], part) {
				t.Errorf("%s is built without%s: %s", image, part, calls[i])
			}
		}
		// By digest: a tag may refer to another image by now.
		if want := "cosign sign --yes " + name + "@" + digest + "\n"; calls[4+i] != want {
			t.Errorf("signed by %q, want %q", calls[4+i], want)
		}
	}
	if want := "helm push dist/underlay-0.2.0.tgz oci://registry.example/a/charts\n"; calls[3] != want {
		t.Errorf("the chart is pushed by %q, want %q", calls[3], want)
	}
	if want := "cosign sign --yes registry.example/a/charts/underlay@" + chartDigest + "\n"; calls[7] != want {
		t.Errorf("the chart is signed by %q, want %q", calls[7], want)
	}
	files := f.dist(t)
	for name := range files {
		if !strings.Contains(calls[9], " dist/"+name) {
			t.Errorf("%s is not published: %s", name, calls[9])
		}
	}
	if chart := string(unpacked(t, files["underlay-0.2.0.tgz"])["underlay/values.yaml"]); !strings.Contains(chart, "agentDigest: "+digest) {
		t.Error("the chart doesn't install the image that was pushed")
	}
}

func TestPublishRefusesBeforeItPushes(t *testing.T) {
	f := newForge(t)
	f.git(t, "tag", "v0.2.0")
	f.write(t, "cmd/program/more.go", "package main\n")
	for version, says := range map[string]string{"v0.2.0": "more.go", "v0.1.0": "not the tag"} {
		if output, calls, err := f.publish(t, version); err == nil || !strings.Contains(output, says) ||
			len(calls) > 0 {
			t.Errorf("%s: %v: %s, after %v", version, err, output, calls)
		}
	}
}

type workflow struct {
	On          map[string]map[string][]string `json:"true"` // YAML 1.1 parses the key on as true
	Permissions map[string]string
	Jobs        map[string]struct {
		Permissions map[string]string
		Needs       string
		Steps       []struct{ Uses, Run string }
	}
}

// TestWorkflow checks as much of the workflow as is possible without the forge: it has no more
// permissions than it needs, third-party actions are pinned, and the files that it runs exist.
func TestWorkflow(t *testing.T) {
	content, err := os.ReadFile(workflowFile)
	if err != nil {
		t.Fatal(err)
	}
	var w workflow
	if err := yaml.Unmarshal(content, &w); err != nil {
		t.Fatal(err)
	}
	if tags := w.On["push"]["tags"]; len(w.On) != 1 || !slices.Equal(tags, []string{"v*"}) {
		t.Errorf("it runs on %v, want tags of versions alone", w.On)
	}
	if w.Permissions == nil || len(w.Permissions) > 0 || w.Jobs["release"].Needs != "test" {
		t.Errorf("by default it may %v, and needs %q", w.Permissions, w.Jobs["release"].Needs)
	}
	for name, job := range w.Jobs {
		for permission, access := range job.Permissions {
			if access == "write" && name != "release" {
				t.Errorf("job %s may write %s", name, permission)
			}
		}
		for _, step := range job.Steps {
			if step.Uses != "" && !regexp.MustCompile(`^actions/[a-z-]+@[0-9a-f]{40}$`).MatchString(step.Uses) {
				t.Errorf("job %s uses %s, want an action pinned by its commit", name, step.Uses)
			}
			for _, script := range regexp.MustCompile(`\.ci/\S+`).FindAllString(step.Run, -1) {
				if info, err := os.Stat(filepath.Join(underlay, script)); err != nil || info.Mode()&0o111 == 0 {
					t.Errorf("job %s runs %s, which can't be run: %v", name, script, err)
				}
			}
			if regexp.MustCompile(`\$\{\{`).MatchString(step.Run) {
				t.Errorf("job %s: the forge would write into the script %q", name, step.Run)
			}
		}
	}
	if signs := w.Jobs["release"].Permissions["id-token"]; signs != "write" {
		t.Errorf("who signs can't be attested: id-token is %q", signs)
	}
	// sudo has its own PATH, without Go, even if it preserves the environment.
	if !strings.Contains(string(content), ".ci/publish ") || !strings.Contains(string(content), `sudo env "PATH=$PATH" "HOME=$HOME" .ci/run`+"\n") {
		t.Error("it doesn't both test, as root with the user's PATH, and publish")
	}
}
