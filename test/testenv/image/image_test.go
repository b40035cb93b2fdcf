package image_test

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/underlay-ccm/underlay/test/testenv/image"
)

func TestArchive(t *testing.T) {
	folder := t.TempDir()
	program := filepath.Join(folder, "program")
	if err := os.WriteFile(program, []byte(strings.Repeat("x", 100_000)), 0o755); err != nil {
		t.Fatal(err)
	}
	shared := image.Files{"/bin/program": program}
	one := image.Image{
		Layers: []image.Files{shared}, Links: map[string]string{"/bin/one": "program"}, Texts: map[string]string{"/etc/one": "1\n"}, User: "1:2",
		Entrypoint: []string{"/bin/one"}, Command: []string{"two"}, Env: []string{image.Path}, Labels: map[string]string{"a": "b"},
	}
	archive := filepath.Join(folder, "images.tar")
	if err := image.Archive(archive, map[string]image.Image{"example.org/one:v1": one, "example.org/two:v1": {Layers: []image.Files{shared}}}); err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag("example.org/one:v1")
	if err != nil {
		t.Fatal(err)
	}
	read, err := tarball.ImageFromPath(archive, &tag)
	if err != nil {
		t.Fatal(err)
	}
	config, err := read.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	for what, pair := range map[string][2]any{
		"user": {config.Config.User, one.User}, "entry point": {config.Config.Entrypoint, one.Entrypoint},
		"command":     {config.Config.Cmd, one.Command},
		"environment": {config.Config.Env, one.Env}, "labels": {config.Config.Labels, one.Labels},
		"layers": {len(config.RootFS.DiffIDs), 2},
	} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			t.Errorf("%s: %v, want %v", what, pair[0], pair[1])
		}
	}
	if info, err := os.Stat(archive); err != nil || info.Size() > 150_000 {
		t.Errorf("a layer that two images share is written twice: %d bytes (%v)", info.Size(), err)
	}
	if err := image.Archive(archive, map[string]image.Image{"example.org/three:v1": {Layers: []image.Files{{"/a": folder + "/missing"}}}}); err == nil {
		t.Error("a file that isn't there was packed")
	}
}

// TestSpecs: images are built for upstream's names, and no path in them lies below a link to a
// folder.
func TestSpecs(t *testing.T) {
	const registry = "registry.k8s.io/e2e-test-images/"
	images, err := image.Specs(t.Context(), image.SpecPrograms{Agnhost: "/a", AgnhostSource: "/b", CoreDNS: "/c", OutOfWindow: "/d"},
		[]string{registry + "agnhost:2.55", registry + "agnhost:2.66.1", registry + "perl:5.26", "gcr.io/private/agnhost:2.6", "registry.k8s.io/build-image/distroless-iptables:v0.9.7"})
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(images) != 3 {
		t.Errorf("images are made for %v", slices.Sorted(maps.Keys(images)))
	}
	made := images[registry+"agnhost:2.66.1"]
	for _, layer := range made.Layers {
		for path := range layer {
			for link := range made.Links {
				if strings.HasPrefix(path, link+"/") {
					t.Errorf("%s lies below %s, which is a link", path, link)
				}
			}
		}
	}
	if last := made.Layers[len(made.Layers)-1]; last["/localhost.crt"] != "/b/porter/localhost.crt" {
		t.Errorf("the last layer is %v", last)
	}
}
