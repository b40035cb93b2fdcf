// Package module builds third-party programs from source, once, for tests that run them: from a
// module below test that only requires a version of them, together with the manifest that installs
// their release. The result is stored beside the control plane's binary, under a hash of its
// inputs.
//
// It doesn't run the programs that it builds.
package module

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

// Module describes a module to build.
type Module struct {
	// Name is used for folders and lines, such as contour; Title is for messages.
	Name, Title string
	// Requirer is the folder below test whose go.mod requires Path.
	Requirer, Path string
	// Manifest is the file in the module that installs the release.
	Manifest string
	// Takes is the duration of a build on two cores, for messages.
	Takes string
	// Salt is a further input of the result.
	Salt string
	// Arguments returns those of go build beside the usual ones, with the packages. Files that they
	// name may be created in the folder, which is removed after the build.
	Arguments func(ctx context.Context, b Built, folder string) ([]string, error)
}

// Built is a module that is built, or will be.
type Built struct {
	// Version is the release, such as v1.33.8.
	Version string
	// Source is the folder of the module that requires it.
	Source string

	folder   string
	manifest string
}

// Program is the path of a program.
func (b Built) Program(name string) string { return filepath.Join(b.folder, name) }

// Manifest is the path of the release's manifest.
func (b Built) Manifest() string { return filepath.Join(b.folder, filepath.Base(b.manifest)) }

// Built returns the module if Build has built it before, and reports whether it has.
func (m Module) Built() (Built, bool, error) {
	b, err := m.locate()
	if err != nil {
		return Built{}, false, err
	}
	_, err = os.Stat(b.folder)
	if errors.Is(err, fs.ErrNotExist) {
		return b, false, nil
	}
	return b, err == nil, err
}

// Build returns the module, and builds it first if it is missing: that takes some minutes and is
// reported on progress.
func (m Module) Build(ctx context.Context, progress io.Writer) (Built, error) {
	b, built, err := m.Built()
	if err != nil || built {
		return b, err
	}
	if err := os.MkdirAll(filepath.Dir(b.folder), 0o755); err != nil {
		return Built{}, fmt.Errorf("make the build cache: %w", err)
	}
	unlock, err := kubebinary.Lock(ctx, b.folder+".lock", m.Name+": another process is building "+m.Title, progress)
	if err != nil {
		return Built{}, err
	}
	defer unlock()
	if _, built, err := m.Built(); err != nil || built { // built by another process
		return b, err
	}
	return b, m.build(ctx, b, progress)
}

// locate returns the paths of the required version, which need not exist yet.
func (m Module) locate() (Built, error) {
	kube, err := kubebinary.Source()
	if err != nil {
		return Built{}, err
	}
	b := Built{Source: filepath.Join(filepath.Dir(kube), m.Requirer), manifest: m.Manifest}
	sum := sha256.New()
	fmt.Fprintf(sum, "%s %s %s %s%s\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, m.Manifest, m.Salt)
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(b.Source, name))
		if err != nil {
			return Built{}, fmt.Errorf("read the module of %s: %w", m.Title, err)
		}
		fmt.Fprintf(sum, "%s %d\n%s\n", name, len(content), content)
		if name == "go.mod" {
			if b.Version, err = m.version(content); err != nil {
				return Built{}, err
			}
		}
	}
	cache, err := kubebinary.Cache()
	b.folder = filepath.Join(cache, fmt.Sprintf("%s-%.8x", m.Name, sum.Sum(nil)))
	return b, err
}

// version returns the release that a go.mod requires.
func (m Module) version(content []byte) (string, error) {
	mod, err := modfile.ParseLax("go.mod", content, nil)
	if err != nil {
		return "", fmt.Errorf("parse the module of %s: %w", m.Title, err)
	}
	for _, r := range mod.Require {
		if r.Mod.Path == m.Path {
			return r.Mod.Version, nil
		}
	}
	return "", fmt.Errorf("test/%s/go.mod does not require %s", m.Requirer, m.Path)
}

// build fills a temporary folder and renames it, so that a folder named by its hash is always
// complete.
func (m Module) build(ctx context.Context, b Built, progress io.Writer) error {
	began := time.Now()
	fmt.Fprintf(progress, "%s: building %s %s\n%s: this happens once: some %s on two cores; result in %s\n",
		m.Name, m.Title, b.Version, m.Name, m.Takes, b.folder)
	temporary, err := os.MkdirTemp(filepath.Dir(b.folder), "building-")
	if err != nil {
		return fmt.Errorf("make the build's folder: %w", err)
	}
	defer os.RemoveAll(temporary)
	work, err := os.MkdirTemp("", "underlay-"+m.Name+"-")
	if err != nil {
		return fmt.Errorf("make the build's folder: %w", err)
	}
	defer os.RemoveAll(work)
	args, err := m.Arguments(ctx, b, work)
	if err != nil {
		return fmt.Errorf("prepare the module of %s: %w", m.Title, err)
	}
	args = append([]string{"build", "-v", "-trimpath", "-buildvcs=false", "-o", temporary + "/"}, args...)
	report := gobuild.Report{Name: m.Name, To: progress}
	if err := report.Compile(ctx, b.command(ctx, args...), "build "+m.Title, 0); err != nil {
		return err
	}
	release, err := b.Folder(ctx, m.Path)
	if err != nil {
		return fmt.Errorf("look for the manifest of %s: %w", m.Title, err)
	}
	content, err := os.ReadFile(filepath.Join(release, m.Manifest))
	if err == nil {
		err = errors.Join(os.WriteFile(filepath.Join(temporary, filepath.Base(m.Manifest)), content,
			0o644), os.Chmod(temporary, 0o755))
	}
	if err != nil {
		return fmt.Errorf("put the manifest of %s beside it: %w", m.Title, err)
	}
	if err := os.Rename(temporary, b.folder); err != nil {
		return fmt.Errorf("put %s in its place: %w", m.Title, err)
	}
	fmt.Fprintf(progress, "%s: built in %s\n", m.Name, gobuild.Since(began))
	return nil
}

// Folder returns the folder of a required module, which is downloaded first if it is missing.
func (b Built) Folder(ctx context.Context, path string) (string, error) {
	if out, err := b.command(ctx, "mod", "download", path).CombinedOutput(); err != nil {
		return "", fmt.Errorf("fetch %s: %w: %s", path, err, out)
	}
	out, err := b.command(ctx, "list", "-m", "-f", "{{.Dir}}", path).Output()
	if err != nil {
		return "", fmt.Errorf("look for %s: %w", path, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// command is a go command in the module's folder that ignores workspaces.
func (b Built) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = b.Source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	return cmd
}
