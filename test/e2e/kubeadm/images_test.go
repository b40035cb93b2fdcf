//go:build linux

package kubeadm

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/underlay-ccm/underlay/test/testenv/dockerfile"
	"github.com/underlay-ccm/underlay/test/testenv/image"
	"github.com/underlay-ccm/underlay/test/testenv/machine"
)

// packed is the variable with the folder of the archives. They are big, and made once for all tests.
const packed = "UNDERLAY_IMAGES"

// archives returns the files with all images that a cluster's machines need. There is no registry.
func archives(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(os.Getenv(packed), "*.tar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no images in %q: %v", os.Getenv(packed), err)
	}
	return files
}

// pack builds what machines run and makes the archives.
func pack(ctx context.Context) error {
	programs, err := machine.Build(ctx, os.Stderr)
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "underlay-images-")
	if err != nil {
		return err
	}
	if err := packInto(ctx, folder, programs); err != nil {
		return errors.Join(err, os.RemoveAll(folder))
	}
	return os.Setenv(packed, folder)
}

func packInto(ctx context.Context, folder string, programs machine.Programs) error {
	kubernetes, err := image.Kubernetes(ctx, programs)
	if err != nil {
		return err
	}
	underlay, err := underlayImages(ctx, folder)
	if err != nil {
		return err
	}
	if err := build(ctx, filepath.Join(folder, "underlayctl"), "./cmd/underlayctl"); err != nil {
		return err
	}
	for name, images := range map[string]map[string]image.Image{"kubernetes": kubernetes, "underlay": underlay} {
		if err := image.Archive(filepath.Join(folder, name+".tar"), images); err != nil {
			return err
		}
	}
	return nil
}

// underlayImages are the Dockerfile's, under the names that the manifests have.
func underlayImages(ctx context.Context, folder string) (map[string]image.Image, error) {
	targets, err := image.Underlay(ctx, tree, folder)
	if err != nil {
		return nil, err
	}
	named := map[string]image.Image{}
	for target := range programsOf() {
		name, err := imageOf(target)
		if err != nil {
			return nil, err
		}
		if _, ok := targets[target]; !ok {
			return nil, fmt.Errorf("the Dockerfile has no target %s", target)
		}
		named[name] = targets[target]
		delete(targets, target)
	}
	for target := range targets {
		named["ghcr.io/underlay-ccm/"+target+":test"] = targets[target]
	}
	named[echoImage], err = buildEcho(ctx, folder)
	return named, err
}

// programsOf are the Dockerfile's targets that the manifests run, with their program.
func programsOf() map[string]string {
	return map[string]string{"ccm": "underlay-ccm", "agent": "underlay-agent"}
}

// installed is what the tutorial installs.
const installed = "testdata/underlay.yaml"

// imageOf is the image that the tutorial's manifests have for a target of the Dockerfile.
func imageOf(target string) (string, error) {
	content, err := os.ReadFile(installed)
	if err != nil {
		return "", err
	}
	found := regexp.MustCompile(`(?m)^\s+image: (\S+/` + programsOf()[target] + `:\S+)$`).FindStringSubmatch(string(content))
	if found == nil {
		return "", fmt.Errorf("%s names no image of %s", installed, programsOf()[target])
	}
	return found[1], nil
}

// build builds a static program.
func build(ctx context.Context, path, program string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, program)
	cmd.Dir, cmd.Env = tree, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", program, err, out)
	}
	return nil
}

// echoImage is what the pods of tests run.
const echoImage = "registry.example.com/you/echo:v1"

func buildEcho(ctx context.Context, folder string) (image.Image, error) {
	program := filepath.Join(folder, "echo")
	if err := build(ctx, program, "./test/testenv/echo/program"); err != nil {
		return image.Image{}, err
	}
	return image.Image{
		Layers: []image.Files{{"/echo": program}}, User: "65532:65532",
		Entrypoint: []string{"/echo", "serve", fmt.Sprint(echoPort)},
	}, nil
}

// What is in the archives is what the Dockerfile says, and what kubeadm asks for.
func TestImages(t *testing.T) {
	needMachines(t)
	stages, err := dockerfile.Read(tree + "/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string][]string{
		"ccm": {"/etc/ssl/certs/ca-certificates.crt", "/underlay-ccm"},
		// Without nft's libraries, which are this machine's.
		"agent": {"/opt/cni/bin/host-local", "/opt/cni/bin/portmap", "/opt/cni/bin/ptp", "/underlay-agent", "/usr/sbin/nft"},
	} {
		stage := stages[target]
		name, err := imageOf(target)
		if err != nil {
			t.Fatal(err)
		}
		config, files := unpack(t, "underlay.tar", name)
		if entrypoint, err := stage.Entrypoint(); err != nil || !slices.Equal(config.Entrypoint, entrypoint) {
			t.Errorf("%s: entry point %q, want %q (%v)", target, config.Entrypoint, entrypoint, err)
		}
		if user := stage.Last("USER"); config.User != user || user == "" {
			t.Errorf("%s: user %q, want %q", target, config.User, user)
		}
		if labels := stage.All("LABEL"); len(config.Labels) != len(labels) {
			t.Errorf("%s: labels %v, want %v", target, config.Labels, labels)
		}
		files = slices.DeleteFunc(files, func(f string) bool { return strings.HasPrefix(f, "/lib") })
		if !slices.Equal(files, want) {
			t.Errorf("%s: it holds %v, want %v", target, files, want)
		}
	}
	for name, want := range map[string]string{"pause:3.10.2": "/pause", "coredns/coredns:v1.14.6": "/coredns", "kube-apiserver:v1.37.1": "/usr/local/bin/kube-apiserver"} {
		if config, _ := unpack(t, "kubernetes.tar", "registry.k8s.io/"+name); !slices.Equal(config.Entrypoint, []string{want}) {
			t.Errorf("%s: entry point %q, want %q", name, config.Entrypoint, want)
		}
	}
}

// unpack reads an image's configuration and the names of its files.
func unpack(t *testing.T, archive, full string) (v1.Config, []string) {
	t.Helper()
	tag, err := name.NewTag(full)
	if err != nil {
		t.Fatal(err)
	}
	packed, err := tarball.ImageFromPath(filepath.Join(os.Getenv(packed), archive), &tag)
	if err != nil {
		t.Fatal(err)
	}
	config, err := packed.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	content := mutate.Extract(packed)
	defer content.Close()
	var files []string
	for reader := tar.NewReader(content); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			slices.Sort(files)
			return config.Config, files
		}
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, "/"+header.Name)
	}
}
