//go:build linux

package kubeadm

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/image"
	"github.com/underlay-ccm/underlay/test/testenv/machine"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

// The program of a Deployment's pods, and its port; see package echo.
const (
	EchoImage = "registry.example.com/you/echo:v1"
	EchoPort  = 8080
)

// rendered is what the tutorial's helm command installs. "make manifests" writes it.
//
//go:embed underlay.yaml
var rendered string

// Manifests are those that the tutorial's helm command installs, with the simulated cloud's
// endpoint.
func Manifests() (string, error) {
	const before = "    provider: hcloud\n"
	if strings.Count(rendered, before) != 1 {
		return "", fmt.Errorf("underlay.yaml has not one line %q", before)
	}
	return strings.Replace(rendered, before, before+"    endpoint: http://"+netlab.CloudAddress+"/v1\n", 1), nil
}

// Programs are the programs of the Dockerfile's targets that the manifests run.
func Programs() map[string]string {
	return map[string]string{"ccm": "underlay-ccm", "agent": "underlay-agent"}
}

// ImageOf returns the image of a target of the Dockerfile in the manifests.
func ImageOf(target string) (string, error) {
	found := regexp.MustCompile(`(?m)^\s+image: (\S+/` + Programs()[target] + `:\S+)$`).FindStringSubmatch(rendered)
	if found == nil {
		return "", fmt.Errorf("underlay.yaml names no image of %s", Programs()[target])
	}
	return found[1], nil
}

// Archives are the names of the files with images in a folder that Pack has created.
func Archives() []string { return []string{"kubernetes.tar", "underlay.tar"} }

// Pack builds the programs of machines, and creates a folder with underlayctl and all images that a
// cluster needs, because there is no registry. The caller removes the folder.
func Pack(ctx context.Context, progress io.Writer) (folder string, err error) {
	programs, err := machine.Build(ctx, progress)
	if err != nil {
		return "", err
	}
	if folder, err = os.MkdirTemp("", "underlay-images-"); err != nil {
		return "", err
	}
	if err := pack(ctx, folder, programs); err != nil {
		return "", errors.Join(err, os.RemoveAll(folder))
	}
	return folder, nil
}

func pack(ctx context.Context, folder string, programs machine.Programs) error {
	tree, err := cluster.Manifests(ctx)
	if err != nil {
		return err
	}
	tree = filepath.Dir(tree)
	kubernetes, err := image.Kubernetes(ctx, programs)
	if err != nil {
		return err
	}
	underlay, err := underlayImages(ctx, tree, folder)
	if err != nil {
		return err
	}
	if err := build(ctx, tree, filepath.Join(folder, "underlayctl"), "./cmd/underlayctl"); err != nil {
		return err
	}
	for i, images := range []map[string]image.Image{kubernetes, underlay} {
		if err := image.Archive(filepath.Join(folder, Archives()[i]), images); err != nil {
			return err
		}
	}
	return nil
}

// underlayImages are the Dockerfile's images, under their names in the manifests, and the echo's.
func underlayImages(ctx context.Context, tree, folder string) (map[string]image.Image, error) {
	targets, err := image.Underlay(ctx, tree, folder)
	if err != nil {
		return nil, err
	}
	named := map[string]image.Image{}
	for target := range Programs() {
		name, err := ImageOf(target)
		if err != nil {
			return nil, err
		}
		if _, ok := targets[target]; !ok {
			return nil, fmt.Errorf("the Dockerfile has no target %s", target)
		}
		named[name] = targets[target]
	}
	program := filepath.Join(folder, "echo")
	named[EchoImage] = image.Image{
		Layers: []image.Files{{"/echo": program}}, User: "65532:65532",
		Entrypoint: []string{"/echo", "serve", fmt.Sprint(EchoPort)},
	}
	return named, build(ctx, tree, program, "./test/testenv/echo/program")
}

// build builds a static program.
func build(ctx context.Context, tree, path, program string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, program)
	cmd.Dir, cmd.Env = tree, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", program, err, out)
	}
	return nil
}
