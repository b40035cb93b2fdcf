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

// readDockerfile reads the stages of the images' Dockerfile.
func readDockerfile(t *testing.T) map[string]dockerfile.Stage {
	t.Helper()
	stages, err := dockerfile.Read(repository + "/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	return stages
}

// TestBasesArePinned: a tag may refer to another image tomorrow.
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

// TestBasesAreRefreshed runs the script with a fake docker that returns newer digests.
func TestBasesAreRefreshed(t *testing.T) {
	folder, bin := t.TempDir(), t.TempDir()
	was := map[string]string{}
	for _, name := range []string{"/Dockerfile", "/.ci/bases"} {
		content, err := os.ReadFile(repository + name)
		if err != nil {
			t.Fatal(err)
		}
		was[name] = string(content)
		write(t, folder+name, was[name])
	}
	newer := "sha256:" + strings.Repeat("e", 64)
	write(t, bin+"/docker", "#!/bin/sh\necho "+newer+"\n")
	cmd := exec.CommandContext(t.Context(), folder+"/.ci/bases")
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	refreshed, err := os.ReadFile(folder + "/Dockerfile")
	want := regexp.MustCompile(`sha256:[0-9a-f]{64}`).ReplaceAllString(was["/Dockerfile"], newer)
	if err != nil || string(refreshed) != want {
		t.Errorf("the Dockerfile has become (%v)\n%s", err, refreshed)
	}
}

// The content of the images is tested where clusters run them: test/e2e/kubeadm. It uses the
// plugins that the Makefile names.
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
