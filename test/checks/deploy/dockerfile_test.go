package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/test/testenv/dockerfile"
)

// readDockerfile reads the stages of what makes the images.
func readDockerfile(t *testing.T) map[string]dockerfile.Stage {
	t.Helper()
	stages, err := dockerfile.Read(repository + "/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	return stages
}

// TestBasesArePinned: a tag may lead to something else tomorrow.
func TestBasesArePinned(t *testing.T) {
	pinned := regexp.MustCompile(`^[a-z]+:[0-9][a-z0-9.-]*@sha256:[0-9a-f]{64}$`)
	digests := map[string]string{}
	for name, s := range readDockerfile(t) {
		if s.Base == "scratch" {
			continue
		}
		if !pinned.MatchString(s.Base) {
			t.Errorf("%s: made from %s, want a tag and a digest", name, s.Base)
		}
		tag, digest, _ := strings.Cut(s.Base, "@")
		if other, ok := digests[tag]; ok && other != digest {
			t.Errorf("%s: %s is %s here and %s elsewhere", name, tag, digest, other)
		}
		digests[tag] = digest
	}
	if len(digests) != 2 {
		t.Errorf("bases are %v, want a Go and a Debian", digests)
	}
}

// TestBasesAreRefreshed runs the script with a docker that knows newer digests.
func TestBasesAreRefreshed(t *testing.T) {
	content, err := os.ReadFile(repository + "/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	folder, bin := t.TempDir(), t.TempDir()
	script, err := os.ReadFile(repository + "/.ci/bases")
	if err != nil {
		t.Fatal(err)
	}
	newer := "sha256:" + strings.Repeat("e", 64)
	for name, text := range map[string]string{
		folder + "/Dockerfile": string(content), folder + "/.ci/bases": string(script),
		bin + "/docker": "#!/bin/sh\necho \"$@\" >>" + bin + "/asked\necho " + newer + "\n",
	} {
		write(t, name, text)
	}
	cmd := exec.CommandContext(t.Context(), folder+"/.ci/bases")
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	refreshed, err := os.ReadFile(folder + "/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`sha256:[0-9a-f]{64}`).ReplaceAllString(string(content), newer)
	if string(refreshed) != want {
		t.Errorf("the Dockerfile has become\n%s", refreshed)
	}
	asked, err := os.ReadFile(bin + "/asked")
	if err != nil {
		t.Fatal(err)
	}
	for _, tag := range []string{"golang:1.26.8", "debian:12-slim"} {
		if strings.Count(string(asked), " "+tag+"\n") != 1 {
			t.Errorf("%s is not asked for once:\n%s", tag, asked)
		}
	}
}

// What the images hold is tried where clusters run them: test/e2e/kubeadm. It runs the plugins that
// the Makefile names.
func TestPluginsAreThoseOfTheTests(t *testing.T) {
	makefile, err := os.ReadFile(repository + "/Makefile")
	if err != nil {
		t.Fatal(err)
	}
	versions := slices.DeleteFunc(readDockerfile(t)["plugins"].All("ARG"), func(arg string) bool {
		return !strings.HasPrefix(arg, "CNI_VERSION=")
	})
	if len(versions) != 1 ||
		!strings.Contains(string(makefile), strings.Replace(versions[0], "=", " := ", 1)+"\n") {
		t.Errorf("the plugins' version is %v, and the tests run another one", versions)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
}
