package deploy

import (
	"encoding/json"
	"os"
	"os/exec"
	"path"
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
		if err := os.Chmod(name, 0o755); err != nil {
			t.Fatal(err)
		}
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

func TestImagesHoldNothingElse(t *testing.T) {
	stages := readDockerfile(t)
	for name, want := range map[string][]string{
		"ccm":        {"/underlay-ccm", "/etc/ssl/certs/ca-certificates.crt"},
		"hcloud-sim": {"/hcloud-sim"},
	} {
		image, ok := stages[name]
		if !ok {
			t.Errorf("there is no target %s", name)
			continue
		}
		if image.Base != "scratch" {
			t.Errorf("%s: made from %s, not from scratch", name, image.Base)
		}
		var files []string
		for _, line := range image.All("COPY") {
			words := strings.Fields(line)
			if len(words) != 3 || words[0] != "--from=build" {
				t.Errorf("%s: COPY %s brings in what the build stage didn't make", name, line)
				continue
			}
			files = append(files, words[2])
		}
		slices.Sort(files)
		slices.Sort(want)
		if !slices.Equal(files, want) {
			t.Errorf("%s: holds %v, want %v", name, files, want)
		}
		if users := image.All("USER"); !slices.Equal(users, []string{"65532:65532"}) {
			t.Errorf("%s: USER %v, want the number that runAsNonRoot can check", name, users)
		}
		if entrypoint, err := image.Entrypoint(); err != nil {
			t.Errorf("%s: it needs a shell that isn't there: %v", name, err)
		} else if entrypoint[0] != "/"+path.Base(entrypoint[0]) || !slices.Contains(files, entrypoint[0]) {
			t.Errorf("%s: ENTRYPOINT %v isn't in the image", name, entrypoint)
		}
	}
}

// TestAgentImage: the agent calls nft, so its image is more than the program, by
// as little as can be.
func TestAgentImage(t *testing.T) {
	image, ok := readDockerfile(t)["agent"]
	if !ok {
		t.Fatal("there is no target agent")
	}
	name, _, _ := strings.Cut(image.Base, "@")
	if distribution, version, _ := strings.Cut(name, ":"); distribution != "debian" || !strings.HasSuffix(version, "-slim") {
		t.Errorf("made from %s, want a small Debian of a certain release", image.Base)
	}
	installed, err := image.Installed()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(installed, []string{"nftables"}) {
		t.Errorf("installs %v, want nftables", installed)
	}
	want := []string{"--from=build /out/underlay-agent /underlay-agent"}
	var plugins []string
	for _, plugin := range cniPlugins(t) {
		plugins = append(plugins, "/out/"+plugin)
	}
	want = append(want, "--from=plugins "+strings.Join(plugins, " ")+" /opt/cni/bin/")
	got := image.All("COPY")
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("COPY %v, want %v", got, want)
	}
	if users, entry := image.All("USER"), image.All("ENTRYPOINT"); !slices.Equal(users, []string{"0:0"}) || !slices.Equal(entry, []string{`["/underlay-agent"]`}) {
		t.Errorf("USER %v, ENTRYPOINT %v", users, entry)
	}
	if makefile, err := os.ReadFile(repository + "/Makefile"); err != nil {
		t.Error(err)
	} else if version := slices.DeleteFunc(readDockerfile(t)["plugins"].All("ARG"), func(a string) bool { return !strings.HasPrefix(a, "CNI_VERSION=") }); len(version) != 1 ||
		!strings.Contains(string(makefile), strings.Replace(version[0], "=", " := ", 1)+"\n") {
		t.Errorf("the plugins' version is %v, and the tests run another one", version)
	}
}

// cniPlugins are those that the agent's CNI configuration names, in its order.
func cniPlugins(t *testing.T) []string {
	t.Helper()
	content, err := os.ReadFile(repository + "/internal/cni/testdata/dualstack.conflist")
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Plugins []struct {
			Type string
			IPAM struct{ Type string }
		}
	}
	if err := json.Unmarshal(content, &list); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, plugin := range list.Plugins {
		names = append(names, plugin.Type)
		if plugin.IPAM.Type != "" {
			names = append(names, plugin.IPAM.Type)
		}
	}
	if len(names) < 3 {
		t.Fatalf("it names only %v", names)
	}
	return names
}
