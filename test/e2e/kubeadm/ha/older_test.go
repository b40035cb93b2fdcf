//go:build linux

package ha

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/image"
	"github.com/underlay-ccm/underlay/test/testenv/kubeadm"
)

const (
	// from is the variable that may name the older version.
	from = "UNDERLAY_FROM"
	// firstVersion is the first version of this tree with the ledger of 16 ConfigMaps, the default
	// while there is no release.
	firstVersion = "018b8e3cf68c0d6b1c23956eff40044af734c8bd"

	// olderTag is the tag of the older version's images.
	olderTag = "v0.0.1-older"
	// olderImages and olderTree are the files that packOlder adds to the folder with the images.
	olderImages, olderTree = "older.tar", "older"
)

// older returns the version to upgrade from: that of the variable, or the last release before this
// version, or the first version.
func older(ctx context.Context, tree string) string {
	if asked := os.Getenv(from); asked != "" {
		return asked
	}
	out, err := exec.CommandContext(ctx, "git", "-C", tree, "describe", "--tags", "--abbrev=0", "--match=v*", "HEAD^").Output()
	if err != nil {
		return firstVersion
	}
	return strings.TrimSpace(string(out))
}

// packOlder builds the images of the older version from its own tree, by its own Dockerfile.
func packOlder(ctx context.Context, folder string) error {
	deploy, err := cluster.Manifests(ctx)
	if err != nil {
		return err
	}
	version := older(ctx, filepath.Dir(deploy))
	fmt.Fprintf(os.Stderr, "packing %s, which is upgraded\n", version)
	tree, programs := filepath.Join(folder, olderTree), filepath.Join(folder, "older-programs")
	if err := os.MkdirAll(tree, 0o755); err != nil {
		return err
	}
	unpack := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", `git -C "$1" archive "$2" | tar -x -C "$3"`, "bash", filepath.Dir(deploy), version, tree)
	if out, err := unpack.CombinedOutput(); err != nil {
		return fmt.Errorf("the tree of %s: %w\n%s", version, err, out)
	}
	targets, err := image.Underlay(ctx, tree, programs)
	if err != nil {
		return fmt.Errorf("%s: %w", version, err)
	}
	images := map[string]image.Image{}
	for target := range kubeadm.Programs() {
		name, err := kubeadm.ImageOf(target)
		if err != nil {
			return err
		}
		base, _, _ := strings.Cut(filepath.Base(name), ":")
		images[filepath.Join(filepath.Dir(name), base+":"+olderTag)] = targets[target]
	}
	return image.Archive(filepath.Join(folder, olderImages), images)
}
