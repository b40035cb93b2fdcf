package kubebinary

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/underlay-ccm/underlay/test/testenv/gobuild"
)

// into builds the binary in a temporary folder and renames it to folder in one
// step: folder is either absent or whole, also after a crash.
func (b kubeBuild) into(ctx context.Context, folder string, progress io.Writer) error {
	fmt.Fprintf(progress, "kube: building etcd, kube-apiserver, kube-controller-manager, kube-proxy and kubectl %s\n"+
		"kube: this happens once: some 8 minutes on two cores, with an empty build cache; result in %s\n", b.version, folder)
	began := time.Now()

	packages, err := b.packages(ctx, progress)
	if err != nil {
		return err
	}
	temporary, err := os.MkdirTemp(filepath.Dir(folder), "building-")
	if err != nil {
		return fmt.Errorf("make the build's folder: %w", err)
	}
	defer os.RemoveAll(temporary)
	if err := b.compile(ctx, filepath.Join(temporary, "kube"), packages, progress); err != nil {
		return err
	}
	if err := os.Chmod(temporary, 0o755); err != nil {
		return fmt.Errorf("open the build's folder to readers: %w", err)
	}
	if err := os.Rename(temporary, folder); err != nil {
		return fmt.Errorf("put the built control plane in its place: %w", err)
	}
	info, err := os.Stat(filepath.Join(folder, "kube"))
	if err != nil {
		return fmt.Errorf("look at the built control plane: %w", err)
	}
	fmt.Fprintf(progress, "kube: built in %s, %d MB\n", gobuild.Since(began), info.Size()/1_000_000)
	return nil
}

// packages counts what the binary consists of. On a fresh machine this is also
// what downloads the modules.
func (b kubeBuild) packages(ctx context.Context, progress io.Writer) (int, error) {
	total := 0
	cmd := b.command(ctx, "list", "-deps", ".")
	cmd.Stdout = gobuild.NewLines(func(string) { total++ })
	downloads := 0
	err := gobuild.Report{Name: "kube", To: progress}.Watch(ctx, cmd, "list the control plane's packages",
		func(line string) { downloads += strings.Count(line, "go: downloading ") },
		func() string { return fmt.Sprintf("%d modules downloaded", downloads) })
	return total, err
}

func (b kubeBuild) compile(ctx context.Context, output string, packages int, progress io.Writer) error {
	cmd := b.command(ctx, append(b.arguments(), "-o", output, ".")...)
	return gobuild.Report{Name: "kube", To: progress}.Compile(ctx, cmd, "build the control plane", packages)
}
