package kubebinary

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
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

// program is a command that one of the modules builds.
type program struct {
	name   string // of the file
	module string // the folder of its module, below test/kube; empty: test/kube
	folder string // of its package, below the module's
	others string // its package, if it is in another module that this one requires
	what   string // for messages
	parts  string // contents, for messages
	wait   string // duration of its build
}

func controlPlane() program {
	return program{
		name: "kube", folder: ".", what: "the control plane",
		parts: "etcd, kube-apiserver, kube-controller-manager, kube-proxy and kubectl",
		wait:  "some 8 minutes on two cores, with an empty build cache",
	}
}

func node() program {
	return program{
		name: "node", folder: "node", what: "the programs of a machine",
		parts: "kubelet, kubeadm and kube-scheduler",
		wait:  "some 2 minutes on two cores after the control plane's build",
	}
}

func specs() program {
	return program{
		name: "e2e", module: "e2e", folder: ".", what: "upstream's specs",
		parts: "the end-to-end specs of the network",
		wait:  "some 2 minutes on two cores after the control plane's build",
	}
}

func agnhost() program {
	return program{
		name: "agnhost", module: "e2e", folder: ".", others: "k8s.io/kubernetes/test/images/agnhost", what: "agnhost",
		parts: "what upstream's specs run in pods,",
		wait:  "half a minute on two cores after the control plane's build",
	}
}

func outOfWindow() program {
	return program{
		name: "out-of-window", module: "e2e", folder: ".", others: "k8s.io/kubernetes/test/images/regression-issue-74839", what: "out-of-window",
		parts: "the server that sends packets outside of the TCP window,",
		wait:  "some seconds after the control plane's build",
	}
}

// Path returns the path of the control plane's binary, and builds it first if it is missing: that
// takes some minutes and is reported on progress. The binary is stored outside of the tree, under a
// hash of all inputs (test/kube, the build's arguments, the Go version and the platform), so a
// change of Underlay itself never causes a rebuild.
func Path(ctx context.Context, progress io.Writer) (string, error) {
	return path(ctx, controlPlane(), progress)
}

// Node is Path for the binary with kubelet, kubeadm and kube-scheduler.
func Node(ctx context.Context, progress io.Writer) (string, error) {
	return path(ctx, node(), progress)
}

// Specs is Path for the program that runs upstream's end-to-end specs of the network.
func Specs(ctx context.Context, progress io.Writer) (string, error) {
	return path(ctx, specs(), progress)
}

// Agnhost is Path for the program that those specs run in pods.
func Agnhost(ctx context.Context, progress io.Writer) (string, error) {
	return path(ctx, agnhost(), progress)
}

// OutOfWindow is Path for the server of the spec about connections that conntrack calls invalid.
func OutOfWindow(ctx context.Context, progress io.Writer) (string, error) {
	return path(ctx, outOfWindow(), progress)
}

// AgnhostSource returns the folder of agnhost's source, which contains files of its image.
func AgnhostSource(ctx context.Context) (string, error) {
	source, err := Source()
	if err != nil {
		return "", err
	}
	build, err := newKubeBuild(ctx, source, agnhost())
	if err != nil {
		return "", err
	}
	out, err := build.command(ctx, "list", "-f", "{{.Dir}}", build.pkg()).Output()
	if err != nil {
		return "", fmt.Errorf("look for agnhost's source: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// Version returns the binaries' version of Kubernetes, such as v1.37.1.
func Version(ctx context.Context) (string, error) {
	source, err := Source()
	if err != nil {
		return "", err
	}
	build, err := newKubeBuild(ctx, source, controlPlane())
	return build.version, err
}

func path(ctx context.Context, p program, progress io.Writer) (string, error) {
	source, err := Source()
	if err != nil {
		return "", err
	}
	build, err := newKubeBuild(ctx, source, p)
	if err != nil {
		return "", err
	}
	folder, err := cacheFolder(build)
	if err != nil {
		return "", err
	}
	path := filepath.Join(folder, p.name)
	if exists(path) {
		return path, nil
	}
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return "", fmt.Errorf("make the build cache: %w", err)
	}
	unlock, err := Lock(ctx, folder+".lock", p.name+": another process is building "+p.what, progress)
	if err != nil {
		return "", err
	}
	defer unlock()
	if exists(path) { // built by another process
		return path, nil
	}
	return path, build.into(ctx, folder, progress)
}

// kubeBuild contains all inputs that determine a binary.
type kubeBuild struct {
	program
	source   string // the folder of the module: test/kube, or one below it
	version  string // of k8s.io/kubernetes, such as v1.37.1
	platform string // Go version, system and architecture
}

func newKubeBuild(ctx context.Context, kube string, p program) (kubeBuild, error) {
	source := filepath.Join(kube, p.module)
	file := filepath.Join(source, "go.mod")
	content, err := os.ReadFile(file)
	if err != nil {
		return kubeBuild{}, fmt.Errorf("read the control plane's module: %w", err)
	}
	mod, err := modfile.ParseLax(file, content, nil)
	if err != nil {
		return kubeBuild{}, fmt.Errorf("parse the control plane's module: %w", err)
	}
	build := kubeBuild{program: p, source: source}
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

// arguments are those of `go build`, without the output. The version has to be stamped: otherwise
// the programs report v0.0.0-master.
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

// hash covers the Go and module files of the module's own folder and of the program's, by name and
// content, and the build's inputs. Tests are not part of the binary, nor are the other programs.
func (b kubeBuild) hash() (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, b.platform, b.arguments())
	if b.others != "" {
		fmt.Fprintln(sum, b.others)
	}
	folders := []string{"."}
	if b.folder != "." {
		folders = append(folders, b.folder)
	}
	for _, folder := range folders {
		entries, err := os.ReadDir(filepath.Join(b.source, folder))
		if err != nil {
			return "", fmt.Errorf("hash the control plane's module: %w", err)
		}
		for _, entry := range entries {
			name := filepath.Join(folder, entry.Name())
			if !entry.Type().IsRegular() || strings.HasSuffix(name, "_test.go") || !slices.Contains([]string{".go", ".mod", ".sum"}, filepath.Ext(name)) {
				continue
			}
			content, err := os.ReadFile(filepath.Join(b.source, name))
			if err != nil {
				return "", fmt.Errorf("hash the control plane's module: %w", err)
			}
			fmt.Fprintf(sum, "%s %d\n%s\n", name, len(content), content)
		}
	}
	return hex.EncodeToString(sum.Sum(nil))[:16], nil
}

// command is a go command in the module's folder that ignores workspaces.
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
	cache, err := Cache()
	return filepath.Join(cache, build.name+"-"+hash), err
}

// Cache returns the folder of results that are built once and kept.
func Cache() (string, error) {
	base := os.Getenv("XDG_CACHE_HOME")
	if base == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("find the build cache (set XDG_CACHE_HOME): %w", err)
		}
		base = filepath.Join(home, ".cache")
	}
	return filepath.Join(base, "underlay"), nil
}

// Source finds test/kube beside this file or, if the compiler trimmed its path, below the module of
// the working directory.
func Source() (string, error) {
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

// Lock prevents two processes from building the same thing, and reports on progress while it waits.
// The kernel releases the lock with the process that holds it, so none can be left behind.
func Lock(ctx context.Context, path, taken string, progress io.Writer) (unlock func(), err error) {
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
			fmt.Fprintln(progress, taken+"; waiting for it")
		}
		select {
		case <-ctx.Done():
			file.Close()
			return nil, fmt.Errorf("wait for another build: %w", context.Cause(ctx))
		case <-tick.C:
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
