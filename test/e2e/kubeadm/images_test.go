//go:build linux

package kubeadm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"testing"

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
	for target, manifest := range map[string]string{"ccm": "ccm/deployment.yaml", "agent": "agent/daemonset.yaml"} {
		name, err := imageIn(manifest)
		if err != nil {
			return nil, err
		}
		if _, ok := targets[target]; !ok {
			return nil, fmt.Errorf("the Dockerfile has no target %s", target)
		}
		named[name] = targets[target]
		delete(targets, target)
	}
	for target := range maps.Keys(targets) {
		named["ghcr.io/underlay-ccm/"+target+":test"] = targets[target]
	}
	return named, nil
}

var imageLine = regexp.MustCompile(`(?m)^\s+image: (\S+)$`)

// imageIn is the image that a manifest's containers have.
func imageIn(manifest string) (string, error) {
	content, err := os.ReadFile(filepath.Join(tree, "deploy", manifest))
	if err != nil {
		return "", err
	}
	found := imageLine.FindStringSubmatch(string(content))
	if found == nil {
		return "", fmt.Errorf("deploy/%s names no image", manifest)
	}
	return found[1], nil
}
