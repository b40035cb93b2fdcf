package cni

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// FileName is the name of the symlink and of its target; it sorts before usual configurations.
const FileName = "05-underlay.conflist"

// temporaryName has no extension that runtimes read.
const temporaryName = "." + FileName + ".tmp"

// Options holds the folders as the container runtime sees them.
type Options struct {
	// ConfDir is the folder of CNI configurations.
	ConfDir string
	// BinDirs are the folders of CNI plugins.
	BinDirs []string
	// StateDir holds the symlink's target, and host-local's state in its folder cni. A reboot must
	// empty it.
	StateDir string
}

// Network is this node's CNI configuration. Only Watch may run concurrently with other methods.
type Network struct{ options Options }

// New returns a Network; it changes nothing.
func New(o Options) *Network { return &Network{options: o} }

// Plan returns the changes that Apply would make, one line each. The error contains what
// prevents the runtime from using the file.
func (n *Network) Plan(_ context.Context, want Desired) (changes, warnings []string, err error) {
	if _, changes, err = n.pending(want); err != nil {
		return nil, nil, err
	}
	return changes, nil, n.usable()
}

// pending returns the desired content of the file, and the change that is needed, if any.
func (n *Network) pending(want Desired) (content []byte, change []string, err error) {
	if len(want.PodCIDRs) == 0 {
		// Never a dangling symlink, which would keep the runtime from using another network.
		if _, err := os.Stat(n.link()); err == nil {
			change = []string{n.link() + " is withdrawn: no pod can start until it is written again"}
		}
		return nil, change, nil
	}
	if content, err = render(want, n.dataDir()); err != nil {
		return nil, nil, err
	}
	same, err := n.holds(content)
	if err != nil || same {
		return content, nil, err
	}
	var podCIDRs []string
	for _, p := range want.PodCIDRs {
		podCIDRs = append(podCIDRs, p.String())
	}
	return content, []string{
		fmt.Sprintf("%s is written: pods' addresses from %s, MTU %d", n.link(),
			strings.Join(podCIDRs, " and "), want.MTU),
	}, nil
}

// Apply writes the file if it is missing or different, and withdraws it if there are no
// podCIDRs. It writes the file even if the error reports that the runtime can't use it yet.
func (n *Network) Apply(_ context.Context, want Desired) (changed, warnings []string, err error) {
	content, changed, err := n.pending(want)
	if err != nil {
		return nil, nil, err
	}
	if len(changed) > 0 {
		if err := n.write(content); err != nil {
			return nil, nil, fmt.Errorf("writing the CNI configuration: %w", err)
		}
	}
	return changed, nil, n.usable()
}

// Cleanup removes the file, and host-local's state if no pod holds an address: without the
// state, host-local would assign an address a second time.
func (n *Network) Cleanup(_ context.Context) (changed []string, err error) {
	var problems []error
	for _, path := range []string{n.link(), n.temporaryLink(), n.file(), n.temporaryFile()} {
		switch err := os.Remove(path); {
		case err == nil:
			changed = append(changed, path+" is removed")
		case !errors.Is(err, fs.ErrNotExist):
			problems = append(problems, fmt.Errorf("removing the CNI configuration: %w", err))
		}
	}
	removed, err := n.forgetAddresses()
	return append(changed, removed...), errors.Join(append(problems, err)...)
}

func (n *Network) link() string          { return filepath.Join(n.options.ConfDir, FileName) }
func (n *Network) temporaryLink() string { return filepath.Join(n.options.ConfDir, temporaryName) }
func (n *Network) file() string          { return filepath.Join(n.options.StateDir, FileName) }
func (n *Network) temporaryFile() string { return filepath.Join(n.options.StateDir, temporaryName) }
func (n *Network) dataDir() string       { return filepath.Join(n.options.StateDir, "cni") }

// holds reports whether the runtime has loaded this content.
func (n *Network) holds(content []byte) (bool, error) {
	// Left by a process that ended before it notified the runtime.
	if _, err := os.Lstat(n.temporaryLink()); err == nil {
		return false, nil
	}
	if target, err := os.Readlink(n.link()); err != nil || target != n.file() {
		return false, nil // missing, or another program's file
	}
	is, err := os.ReadFile(n.file())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("reading the CNI configuration: %w", err)
	}
	return err == nil && bytes.Equal(is, content), nil
}

// write replaces the file atomically, because a runtime may read it at any time, or removes it
// if there is no content; then it notifies the runtime. containerd reloads its folder when a
// file in it is written, removed or renamed, but not when one is created or when a symlink's
// target changes. So the symlink is recreated under another name and renamed each time.
func (n *Network) write(content []byte) error {
	for _, dir := range []string{n.options.ConfDir, n.options.StateDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := os.Remove(n.temporaryLink()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(n.file(), n.temporaryLink()); err != nil {
		return err
	}
	if len(content) == 0 {
		if err := os.Remove(n.file()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	} else {
		if err := os.WriteFile(n.temporaryFile(), content, 0o600); err != nil {
			return err
		}
		if err := os.Rename(n.temporaryFile(), n.file()); err != nil {
			return err
		}
	}
	if err := os.Rename(n.temporaryLink(), n.link()); err != nil {
		return err
	}
	// After a power failure the runtime must find the link, not only another network's file.
	dir, err := os.Open(n.options.ConfDir)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// usable returns what prevents the container runtime from using the file.
func (n *Network) usable() error {
	earlier, err := n.earlier()
	problems := []error{err}
	if len(earlier) > 0 {
		problems = append(problems, fmt.Errorf("%s: the container runtime takes it, because its name sorts before %s; remove it, or rename it to sort behind, if pods are to be in this network",
			strings.Join(earlier, ", "), FileName))
	}
	for _, name := range plugins() {
		if !n.installed(name) {
			problems = append(problems, fmt.Errorf("the CNI plugin %s is not in %s; install the plugins of github.com/containernetworking/plugins there",
				name, strings.Join(n.options.BinDirs, " or ")))
		}
	}
	return errors.Join(problems...)
}

// earlier returns the files that runtimes prefer to ours.
func (n *Network) earlier() ([]string, error) {
	entries, err := os.ReadDir(n.options.ConfDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for other CNI configurations: %w", err)
	}
	var found []string
	for _, e := range entries {
		read := slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(e.Name()))
		if e.Name() < FileName && !e.IsDir() && read {
			found = append(found, filepath.Join(n.options.ConfDir, e.Name()))
		}
	}
	return found, nil
}

func (n *Network) installed(plugin string) bool {
	return slices.ContainsFunc(n.options.BinDirs, func(dir string) bool {
		info, err := os.Stat(filepath.Join(dir, plugin))
		return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
	})
}

func (n *Network) forgetAddresses() (changed []string, err error) {
	dir := filepath.Join(n.dataDir(), networkName)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for addresses of pods: %w", err)
	}
	for _, e := range entries {
		if e.Name() != "lock" && !strings.HasPrefix(e.Name(), "last_reserved_ip.") {
			return nil, nil
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return nil, fmt.Errorf("removing the state of host-local: %w", err)
	}
	// Fails if the folder is not empty.
	_ = os.Remove(n.dataDir())
	return []string{dir + " is removed: no pod has an address"}, nil
}
