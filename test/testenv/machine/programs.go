//go:build linux

package machine

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
	"slices"
	"strings"
	"time"

	"github.com/underlay-ccm/underlay/test/testenv/gobuild"
	"github.com/underlay-ccm/underlay/test/testenv/kubebinary"
)

// Programs is a folder with the programs of machines and images:
//
//	bin/  in the PATH of every machine: containerd, runc, kubelet, kubeadm, kubectl and their helpers
//	cni/  the plugins that a package installs in /opt/cni/bin
//	image/  coredns and pause
type Programs struct{ Folder string }

// Path is the path of one of them, such as bin/kubelet.
func (p Programs) Path(name string) string { return filepath.Join(p.Folder, name) }

// source is a go command that builds programs.
type source struct {
	what     string
	dir      string // working directory; empty: any, outside of every module
	to       string // folder of the result
	packages []string
	tags     string
	cgo      bool
}

// seccompHeader exists if the headers that runc's build needs are installed.
const seccompHeader = "/usr/include/seccomp.h"

func sources(test string) []source {
	const (
		containerd = "github.com/containerd/containerd/v2/cmd/"
		plugins    = "github.com/containernetworking/plugins/plugins/"
	)
	at := func(version, prefix string, names ...string) []string {
		var packages []string
		for _, name := range names {
			packages = append(packages, prefix+name+"@"+version)
		}
		return packages
	}
	return []source{
		{what: "CoreDNS", dir: filepath.Join(test, "coredns"), to: "image", packages: []string{"."}},
		{what: "pause", dir: filepath.Join(test, "testenv", "machine", "pause"), to: "image", packages: []string{"."}},
		{what: "CNI plugins", to: "cni", packages: at("v1.9.1", plugins, "main/ptp", "main/loopback", "ipam/host-local", "meta/portmap")},
		{what: "runc", to: "bin", packages: at("v1.5.2", "github.com/opencontainers/", "runc"), tags: "seccomp", cgo: true},
		{
			what: "containerd", to: "bin", packages: at("v2.4.2", containerd, "containerd", "containerd-shim-runc-v2", "ctr"),
			tags: "no_btrfs no_devmapper no_zfs",
		},
	}
}

// Build returns the programs, and builds them first if they are missing: that takes some minutes
// and is reported on progress. They are stored beside the control plane's binary, under a hash of
// their inputs.
func Build(ctx context.Context, progress io.Writer) (Programs, error) {
	if err := headers(); err != nil {
		return Programs{}, err
	}
	kube, err := kubebinary.Path(ctx, progress)
	if err != nil {
		return Programs{}, err
	}
	node, err := kubebinary.Node(ctx, progress)
	if err != nil {
		return Programs{}, err
	}
	module, err := kubebinary.Source()
	if err != nil {
		return Programs{}, err
	}
	cache, err := kubebinary.Cache()
	if err != nil {
		return Programs{}, err
	}
	all := sources(filepath.Dir(module))
	hash, err := hashOf(all, kube, node)
	if err != nil {
		return Programs{}, fmt.Errorf("hash the machines' programs: %w", err)
	}
	built := Programs{filepath.Join(cache, "machine-"+hash)}
	if exists(built.Folder) {
		return built, nil
	}
	unlock, err := kubebinary.Lock(ctx, built.Folder+".lock", "machine: another process is building machines' programs", progress)
	if err != nil {
		return Programs{}, err
	}
	defer unlock()
	if exists(built.Folder) { // built by another process
		return built, nil
	}
	return built, build(ctx, built.Folder, all, kube, node, progress)
}

// hashOf covers the commands, the sources in this tree and the binaries of Kubernetes, whose paths
// contain a hash of their own.
func hashOf(all []source, kube, node string) (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, runtime.Version(), runtime.GOARCH, filepath.Base(filepath.Dir(kube)),
		filepath.Base(filepath.Dir(node)))
	for _, s := range all {
		fmt.Fprintln(sum, s.what, s.to, s.packages, s.tags, s.cgo)
		if s.dir == "" {
			continue
		}
		entries, err := os.ReadDir(s.dir)
		if err != nil {
			return "", err
		}
		for _, entry := range entries {
			if !slices.Contains([]string{".go", ".mod", ".sum"}, filepath.Ext(entry.Name())) {
				continue
			}
			content, err := os.ReadFile(filepath.Join(s.dir, entry.Name()))
			if err != nil {
				return "", err
			}
			fmt.Fprintf(sum, "%s %d\n%s\n", entry.Name(), len(content), content)
		}
	}
	return fmt.Sprintf("%.8x", sum.Sum(nil)), nil
}

// build fills a temporary folder and renames it, so that a folder named by its hash is always
// complete.
func build(
	ctx context.Context, folder string, all []source, kube, node string, progress io.Writer,
) error {
	began := time.Now()
	fmt.Fprintf(progress, "machine: building containerd, runc, CoreDNS and what machines run else\n"+
		"machine: this happens once: some 4 minutes on two cores; result in %s\n", folder)
	temporary, err := os.MkdirTemp(filepath.Dir(folder), "building-")
	if err != nil {
		return fmt.Errorf("make the build's folder: %w", err)
	}
	defer os.RemoveAll(temporary)
	for _, s := range all {
		if err := s.build(ctx, temporary, progress); err != nil {
			return err
		}
	}
	if err := errors.Join(
		multicall(temporary, kube, "kubectl", "etcd", "kube-apiserver", "kube-controller-manager", "kube-proxy"),
		multicall(temporary, node, "kubelet", "kubeadm", "kube-scheduler"),
		os.Chmod(temporary, 0o755),
	); err != nil {
		return fmt.Errorf("put programs of Kubernetes beside the others: %w", err)
	}
	if err := os.Rename(temporary, folder); err != nil {
		return fmt.Errorf("put the machines' programs in their place: %w", err)
	}
	fmt.Fprintf(progress, "machine: built in %s\n", gobuild.Since(began))
	return nil
}

func (s source) build(ctx context.Context, folder string, progress io.Writer) error {
	to := filepath.Join(folder, s.to)
	if err := os.MkdirAll(to, 0o755); err != nil {
		return fmt.Errorf("build %s: %w", s.what, err)
	}
	args := []string{"install", "-v"}
	if s.dir != "" {
		args = []string{"build", "-v", "-o", to + "/"}
	}
	args = append(args, "-trimpath", "-buildvcs=false", "-tags", s.tags, "-ldflags", "-s -w")
	cmd := exec.CommandContext(ctx, "go", append(args, s.packages...)...)
	cmd.Dir = s.dir
	if s.dir == "" {
		cmd.Dir = folder
	}
	cgo := "CGO_ENABLED=0"
	if s.cgo {
		cgo = "CGO_ENABLED=1"
	}
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOBIN="+to, cgo)
	return gobuild.Report{Name: "machine", To: progress}.Compile(ctx, cmd, "build "+s.what, 0)
}

// multicall puts a binary into the folder under its own name, with links under the names that
// select its programs.
func multicall(folder, binary string, names ...string) error {
	bin := filepath.Join(folder, "bin")
	base := filepath.Base(binary)
	if err := link(binary, filepath.Join(bin, base)); err != nil {
		return err
	}
	for _, name := range names {
		if err := os.Symlink(base, filepath.Join(bin, name)); err != nil {
			return err
		}
	}
	return nil
}

// link creates a hard link, or a copy where links are impossible.
func link(from, to string) error {
	err := os.Link(from, to)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}

// Images returns the images that kubeadm pulls, such as registry.k8s.io/etcd:3.7.0-0, by the last
// element of their names.
func (p Programs) Images(ctx context.Context) (map[string]string, error) {
	version, err := kubebinary.Version(ctx)
	if err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, p.Path("bin/kubeadm"), "config", "images", "list", "--kubernetes-version", version).Output()
	if err != nil {
		return nil, fmt.Errorf("ask kubeadm for its images: %w", err)
	}
	images := map[string]string{}
	for line := range strings.Lines(string(out)) {
		image := strings.TrimSpace(line)
		name, _, _ := strings.Cut(filepath.Base(image), ":")
		images[name] = image
	}
	return images, nil
}
