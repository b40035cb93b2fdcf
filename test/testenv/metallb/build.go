package metallb

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/mod/modfile"

	"github.com/underlay-ccm/underlay/test/testenv/gobuild"
	"github.com/underlay-ccm/underlay/test/testenv/kubebinary"
)

const (
	modulePath = "go.universe.tf/metallb"
	// manifest is what MetalLB's documentation tells to apply, in its module.
	manifest = "config/manifests/metallb-native.yaml"
)

// MetalLB is a built MetalLB.
type MetalLB struct {
	// Version is that of the release, such as v0.16.2.
	Version string

	folder string
	source string // the folder of the module that it is built from
}

// Manifest is the path of the release's manifest, which has everything but the pools.
func (m MetalLB) Manifest() string { return filepath.Join(m.folder, filepath.Base(manifest)) }

func (m MetalLB) program(name string) string { return filepath.Join(m.folder, name) }

// Built returns MetalLB where Build has built it before, and reports whether it has.
func Built() (MetalLB, bool, error) {
	m, err := locate()
	if err != nil {
		return MetalLB{}, false, err
	}
	_, err = os.Stat(m.folder)
	if errors.Is(err, fs.ErrNotExist) {
		return m, false, nil
	}
	return m, err == nil, err
}

// Build returns MetalLB, which is built first where it is missing: some minutes, reported on
// progress. It is kept beside the control plane's binary, under a hash of what it is made from.
func Build(ctx context.Context, progress io.Writer) (MetalLB, error) {
	m, built, err := Built()
	if err != nil || built {
		return m, err
	}
	if err := os.MkdirAll(filepath.Dir(m.folder), 0o755); err != nil {
		return MetalLB{}, fmt.Errorf("make the build cache: %w", err)
	}
	unlock, err := kubebinary.Lock(ctx, m.folder+".lock", "metallb: another process is building MetalLB", progress)
	if err != nil {
		return MetalLB{}, err
	}
	defer unlock()
	if _, built, err := Built(); err != nil || built { // another process built it while we waited
		return m, err
	}
	return m, m.build(ctx, progress)
}

// locate says where the MetalLB lies, or will lie, that the module test/metallb requires.
func locate() (MetalLB, error) {
	kube, err := kubebinary.Source()
	if err != nil {
		return MetalLB{}, err
	}
	m := MetalLB{source: filepath.Join(filepath.Dir(kube), "metallb")}
	sum := sha256.New()
	fmt.Fprintf(sum, "%s %s %s %s %q %q\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, manifest, lackingField, lackingType)
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(m.source, name))
		if err != nil {
			return MetalLB{}, fmt.Errorf("read MetalLB's module: %w", err)
		}
		fmt.Fprintf(sum, "%s %d\n%s\n", name, len(content), content)
		if name == "go.mod" {
			if m.Version, err = version(content); err != nil {
				return MetalLB{}, err
			}
		}
	}
	cache, err := kubebinary.Cache()
	m.folder = filepath.Join(cache, fmt.Sprintf("metallb-%.8x", sum.Sum(nil)))
	return m, err
}

// version is the release that a module requires.
func version(content []byte) (string, error) {
	mod, err := modfile.ParseLax("go.mod", content, nil)
	if err != nil {
		return "", fmt.Errorf("parse MetalLB's module: %w", err)
	}
	for _, r := range mod.Require {
		if r.Mod.Path == modulePath {
			return r.Mod.Version, nil
		}
	}
	return "", fmt.Errorf("test/metallb/go.mod does not require %s", modulePath)
}

// build fills a temporary folder and renames it: what stands under the hash is whole.
func (m MetalLB) build(ctx context.Context, progress io.Writer) error {
	began := time.Now()
	fmt.Fprintf(progress, "metallb: building MetalLB %s\n"+
		"metallb: this happens once: some 2 minutes on two cores; result in %s\n", m.Version, m.folder)
	temporary, err := os.MkdirTemp(filepath.Dir(m.folder), "building-")
	if err != nil {
		return fmt.Errorf("make the build's folder: %w", err)
	}
	defer os.RemoveAll(temporary)
	work, err := os.MkdirTemp("", "underlay-metallb-")
	if err != nil {
		return fmt.Errorf("make the build's folder: %w", err)
	}
	defer os.RemoveAll(work)
	mod, err := m.withFRR(ctx, work)
	if err != nil {
		return fmt.Errorf("prepare MetalLB's module: %w", err)
	}
	compile := m.command(ctx, "build", "-v", "-modfile="+mod, "-trimpath", "-buildvcs=false", "-ldflags", "-s -w",
		"-o", temporary+"/", modulePath+"/controller", modulePath+"/speaker")
	if err := (gobuild.Report{Name: "metallb", To: progress}).Compile(ctx, compile, "build MetalLB", 0); err != nil {
		return err
	}
	release, err := m.moduleFolder(ctx, modulePath)
	if err != nil {
		return fmt.Errorf("look for MetalLB's manifest: %w", err)
	}
	content, err := os.ReadFile(filepath.Join(release, manifest))
	if err == nil {
		err = errors.Join(os.WriteFile(filepath.Join(temporary, filepath.Base(manifest)), content, 0o644), os.Chmod(temporary, 0o755))
	}
	if err != nil {
		return fmt.Errorf("put MetalLB's manifest beside it: %w", err)
	}
	if err := os.Rename(temporary, m.folder); err != nil {
		return fmt.Errorf("put MetalLB in its place: %w", err)
	}
	fmt.Fprintf(progress, "metallb: built in %s\n", gobuild.Since(began))
	return nil
}

// moduleFolder is where a module that ours requires lies, fetched first if it is missing.
func (m MetalLB) moduleFolder(ctx context.Context, path string) (string, error) {
	if out, err := m.command(ctx, "mod", "download", path).CombinedOutput(); err != nil {
		return "", fmt.Errorf("fetch %s: %w: %s", path, err, out)
	}
	out, err := m.command(ctx, "list", "-m", "-f", "{{.Dir}}", path).Output()
	if err != nil {
		return "", fmt.Errorf("look for %s: %w", path, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// command is a go command in the module's folder, apart from any workspace.
func (m MetalLB) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = m.source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	return cmd
}
