package kubebinary

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/mod/modfile"
)

// modulePath is Underlay's own module: the one above test/kube.
const modulePath = "github.com/underlay-ccm/underlay"

// Path returns the path of the control plane's binary, which is built first
// where it is missing: some minutes, reported on progress. It lies outside of
// the tree, under a hash of everything that it is made from (test/kube, the
// build's arguments, the Go version and the platform), so that a change of
// Underlay itself never builds it anew.
func Path(ctx context.Context, progress io.Writer) (string, error) {
	source, err := kubeSource()
	if err != nil {
		return "", err
	}
	build, err := newKubeBuild(ctx, source)
	if err != nil {
		return "", err
	}
	folder, err := cacheFolder(build)
	if err != nil {
		return "", err
	}
	path := filepath.Join(folder, "kube")
	if exists(path) {
		return path, nil
	}
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return "", fmt.Errorf("make the build cache: %w", err)
	}
	unlock, err := lock(ctx, folder+".lock", progress)
	if err != nil {
		return "", err
	}
	defer unlock()
	if exists(path) { // another process built it while we waited
		return path, nil
	}
	return path, build.into(ctx, folder, progress)
}

// kubeBuild is everything that decides what the binary is.
type kubeBuild struct {
	source   string // the folder test/kube
	version  string // of k8s.io/kubernetes, such as v1.37.1
	platform string // Go version, system and architecture
}

func newKubeBuild(ctx context.Context, source string) (kubeBuild, error) {
	file := filepath.Join(source, "go.mod")
	content, err := os.ReadFile(file)
	if err != nil {
		return kubeBuild{}, fmt.Errorf("read the control plane's module: %w", err)
	}
	mod, err := modfile.ParseLax(file, content, nil)
	if err != nil {
		return kubeBuild{}, fmt.Errorf("parse the control plane's module: %w", err)
	}
	build := kubeBuild{source: source}
	for _, r := range mod.Require {
		if r.Mod.Path == "k8s.io/kubernetes" {
			build.version = r.Mod.Version
		}
	}
	if build.version == "" {
		return kubeBuild{}, fmt.Errorf("%s does not require k8s.io/kubernetes", file)
	}
	out, err := build.command(ctx, "env", "GOVERSION", "GOOS", "GOARCH").Output()
	if err != nil {
		return kubeBuild{}, fmt.Errorf("ask go for its version (is it on the PATH?): %w", err)
	}
	build.platform = strings.Join(strings.Fields(string(out)), " ")
	return build, nil
}

// arguments are those of `go build`, without the output. The version has to be
// stamped: unstamped, the programs call themselves v0.0.0-master.
func (b kubeBuild) arguments() []string {
	major, rest, _ := strings.Cut(strings.TrimPrefix(b.version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	flags := []string{"-s", "-w"}
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags = append(flags,
			"-X", pkg+".gitVersion="+b.version,
			"-X", pkg+".gitMajor="+major,
			"-X", pkg+".gitMinor="+minor)
	}
	return []string{"build", "-v", "-trimpath", "-buildvcs=false", "-ldflags", strings.Join(flags, " ")}
}

// hash covers the folder's Go and module files by name and content, and the
// build's inputs. Tests are not part of the binary.
func (b kubeBuild) hash() (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, b.platform, b.arguments())
	err := filepath.WalkDir(b.source, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || strings.HasSuffix(path, "_test.go") || !slices.Contains([]string{".go", ".mod", ".sum"}, filepath.Ext(path)) {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(b.source, path)
		fmt.Fprintf(sum, "%s %d\n%s\n", name, len(content), content)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("hash the control plane's module: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil))[:16], nil
}

// command is a go command in the module's folder, apart from any workspace.
func (b kubeBuild) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = b.source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	return cmd
}

func cacheFolder(build kubeBuild) (string, error) {
	hash, err := build.hash()
	if err != nil {
		return "", err
	}
	base := os.Getenv("XDG_CACHE_HOME")
	if base == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("find the build cache (set XDG_CACHE_HOME): %w", err)
		}
		base = filepath.Join(home, ".cache")
	}
	return filepath.Join(base, "underlay", "kube-"+hash), nil
}

// kubeSource finds test/kube beside this file or, where the compiler was told
// to trim its path, below the module that the working directory lies in.
func kubeSource() (string, error) {
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		source := filepath.Join(filepath.Dir(file), "..", "..", "kube")
		if exists(filepath.Join(source, "go.mod")) {
			return filepath.Clean(source), nil
		}
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the module's folder: %w", err)
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && modfile.ModulePath(content) == modulePath {
			return filepath.Join(dir, "test", "kube"), nil
		}
	}
	return "", fmt.Errorf("test/kube not found: run this below the folder of module %s", modulePath)
}

// lock keeps a second process from building the same thing. The kernel drops it
// with the process that holds it, so none can be left over.
func lock(ctx context.Context, path string, progress io.Writer) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the build lock: %w", err)
	}
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for told := false; ; told = true {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			file.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if !told {
			fmt.Fprintln(progress, "kube: another process is building the control plane; waiting for it")
		}
		select {
		case <-ctx.Done():
			file.Close()
			return nil, fmt.Errorf("wait for another build of the control plane: %w", context.Cause(ctx))
		case <-tick.C:
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
