package contour

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
	modulePath = "github.com/projectcontour/contour"
	// manifest is what Contour's documentation tells to apply, in its module.
	manifest = "examples/render/contour-gateway-provisioner.yaml"
)

// Contour is a built Contour.
type Contour struct {
	// Version is that of the release, such as v1.33.8.
	Version string

	folder string
	source string // the folder of the module that it is built from
}

// Program is the path of the program contour.
func (c Contour) Program() string { return filepath.Join(c.folder, "contour") }

// Manifest is the path of the release's manifest, which installs the gateway provisioner with its
// custom resource definitions, the Gateway API's among them.
func (c Contour) Manifest() string { return filepath.Join(c.folder, filepath.Base(manifest)) }

// Built returns Contour where Build has built it before, and reports whether it has.
func Built() (Contour, bool, error) {
	c, err := locate()
	if err != nil {
		return Contour{}, false, err
	}
	_, err = os.Stat(c.folder)
	if errors.Is(err, fs.ErrNotExist) {
		return c, false, nil
	}
	return c, err == nil, err
}

// Build returns Contour, which is built first where it is missing: some minutes, reported on
// progress. It is kept beside the control plane's binary, under a hash of what it is made from.
func Build(ctx context.Context, progress io.Writer) (Contour, error) {
	c, built, err := Built()
	if err != nil || built {
		return c, err
	}
	if err := os.MkdirAll(filepath.Dir(c.folder), 0o755); err != nil {
		return Contour{}, fmt.Errorf("make the build cache: %w", err)
	}
	unlock, err := kubebinary.Lock(ctx, c.folder+".lock", "contour: another process is building Contour", progress)
	if err != nil {
		return Contour{}, err
	}
	defer unlock()
	if _, built, err := Built(); err != nil || built { // another process built it while we waited
		return c, err
	}
	return c, c.build(ctx, progress)
}

// locate says where the Contour lies, or will lie, that the module test/gatewayapi requires.
func locate() (Contour, error) {
	kube, err := kubebinary.Source()
	if err != nil {
		return Contour{}, err
	}
	c := Contour{source: filepath.Join(filepath.Dir(kube), "gatewayapi")}
	sum := sha256.New()
	fmt.Fprintln(sum, runtime.Version(), runtime.GOOS, runtime.GOARCH, manifest)
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(c.source, name))
		if err != nil {
			return Contour{}, fmt.Errorf("read Contour's module: %w", err)
		}
		fmt.Fprintf(sum, "%s %d\n%s\n", name, len(content), content)
		if name == "go.mod" {
			if c.Version, err = version(content); err != nil {
				return Contour{}, err
			}
		}
	}
	cache, err := kubebinary.Cache()
	c.folder = filepath.Join(cache, fmt.Sprintf("contour-%.8x", sum.Sum(nil)))
	return c, err
}

// version is the release that a module requires.
func version(content []byte) (string, error) {
	mod, err := modfile.ParseLax("go.mod", content, nil)
	if err != nil {
		return "", fmt.Errorf("parse Contour's module: %w", err)
	}
	for _, r := range mod.Require {
		if r.Mod.Path == modulePath {
			return r.Mod.Version, nil
		}
	}
	return "", fmt.Errorf("test/gatewayapi/go.mod does not require %s", modulePath)
}

// build fills a temporary folder and renames it: what stands under the hash is whole.
func (c Contour) build(ctx context.Context, progress io.Writer) error {
	began := time.Now()
	fmt.Fprintf(progress, "contour: building Contour %s\n"+
		"contour: this happens once: some 3 minutes on two cores; result in %s\n", c.Version, c.folder)
	temporary, err := os.MkdirTemp(filepath.Dir(c.folder), "building-")
	if err != nil {
		return fmt.Errorf("make the build's folder: %w", err)
	}
	defer os.RemoveAll(temporary)
	ldflags := "-s -w -X " + modulePath + "/internal/build.Version=" + c.Version
	compile := c.command(ctx, "build", "-v", "-trimpath", "-buildvcs=false", "-ldflags", ldflags, "-o", temporary+"/", modulePath+"/cmd/contour")
	if err := (gobuild.Report{Name: "contour", To: progress}).Compile(ctx, compile, "build Contour", 0); err != nil {
		return err
	}
	release, err := c.command(ctx, "list", "-m", "-f", "{{.Dir}}", modulePath).Output()
	if err != nil {
		return fmt.Errorf("look for Contour's manifests: %w", err)
	}
	content, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(release)), manifest))
	if err == nil {
		err = errors.Join(os.WriteFile(filepath.Join(temporary, filepath.Base(manifest)), content, 0o644), os.Chmod(temporary, 0o755))
	}
	if err != nil {
		return fmt.Errorf("put Contour's manifest beside it: %w", err)
	}
	if err := os.Rename(temporary, c.folder); err != nil {
		return fmt.Errorf("put Contour in its place: %w", err)
	}
	fmt.Fprintf(progress, "contour: built in %s\n", gobuild.Since(began))
	return nil
}

// command is a go command in the module's folder, apart from any workspace.
func (c Contour) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = c.source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	return cmd
}
