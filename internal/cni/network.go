package cni

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// FileName is the file's name. Others sort behind it unless somebody means them
// not to.
const FileName = "05-underlay.conflist"

// temporaryName ends in nothing that runtimes read.
const temporaryName = "." + FileName + ".tmp"

// Options say where things are, as the container runtime sees them.
type Options struct {
	// ConfDir holds the files of networks; empty: /etc/cni/net.d.
	ConfDir string
	// BinDirs hold the plugins; none: /opt/cni/bin.
	BinDirs []string
	// DataDir is for host-local's state; empty: /run/underlay/cni. A reboot must
	// empty it, since no pod outlives one.
	DataDir string
}

// Network is this node's part of the pod network. Not safe for concurrent use,
// but for Watch.
type Network struct{ options Options }

// New changes nothing yet.
func New(o Options) *Network {
	o.ConfDir = cmp.Or(o.ConfDir, "/etc/cni/net.d")
	o.DataDir = cmp.Or(o.DataDir, "/run/underlay/cni")
	if len(o.BinDirs) == 0 {
		o.BinDirs = []string{"/opt/cni/bin"}
	}
	return &Network{options: o}
}

// Plan says what Apply would change, one line each. Its error is what keeps the
// runtime from using the file.
func (n *Network) Plan(_ context.Context, want Desired) (changes, warnings []string, err error) {
	if _, changes, err = n.pending(want); err != nil {
		return nil, nil, err
	}
	return changes, nil, n.usable()
}

// pending is the file's content as it should be, and the change that makes it
// so; none where it is.
func (n *Network) pending(want Desired) (content []byte, change []string, err error) {
	if content, err = render(want, n.options.DataDir); err != nil {
		return nil, nil, err
	}
	same, err := n.holds(content)
	if err != nil || same {
		return content, nil, err
	}
	return content, []string{n.written(want)}, nil
}

// Apply writes the file where it is missing or another. It does so also when the
// error says that the runtime can't use it yet.
func (n *Network) Apply(ctx context.Context, want Desired) (changed, warnings []string, err error) {
	content, changed, err := n.pending(want)
	if err != nil {
		return nil, nil, err
	}
	if len(changed) > 0 {
		if err := n.write(content); err != nil {
			return nil, nil, err
		}
	}
	return changed, nil, n.usable()
}

// Cleanup removes the file, and host-local's state where no pod holds an
// address: with the state gone, the next pod would get an address that is taken.
func (n *Network) Cleanup(_ context.Context) (changed []string, err error) {
	var problems []error
	for _, name := range []string{FileName, temporaryName} {
		path := n.path(name)
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

func (n *Network) path(name string) string { return filepath.Join(n.options.ConfDir, name) }

func (n *Network) written(want Desired) string {
	return fmt.Sprintf("%s is written: pods' addresses from %s, MTU %d", n.path(FileName), join(want.PodCIDRs), want.MTU)
}

func (n *Network) holds(content []byte) (bool, error) {
	is, err := os.ReadFile(n.path(FileName))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the CNI configuration: %w", err)
	}
	return bytes.Equal(is, content), nil
}

// write replaces the file in one step: a runtime may look at any moment.
func (n *Network) write(content []byte) error {
	if err := os.MkdirAll(n.options.ConfDir, 0o755); err != nil {
		return fmt.Errorf("making the folder of CNI configurations: %w", err)
	}
	temporary := n.path(temporaryName)
	if err := writeSynced(temporary, content); err != nil {
		return fmt.Errorf("writing the CNI configuration: %w", err)
	}
	if err := os.Rename(temporary, n.path(FileName)); err != nil {
		return fmt.Errorf("writing the CNI configuration: %w", err)
	}
	return nil
}

// writeSynced writes through to the disk: a rename that outlives a power cut
// which the content doesn't would leave an empty file.
func writeSynced(path string, content []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	return errors.Join(err, file.Sync(), file.Close())
}

// usable says what keeps the container runtime from using the file.
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

// earlier are the files that runtimes prefer to ours.
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
		if e.Name() < FileName && !e.IsDir() && isConfiguration(e.Name()) {
			found = append(found, n.path(e.Name()))
		}
	}
	return found, nil
}

func isConfiguration(name string) bool {
	return slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(name))
}

func (n *Network) installed(plugin string) bool {
	return slices.ContainsFunc(n.options.BinDirs, func(dir string) bool {
		info, err := os.Stat(filepath.Join(dir, plugin))
		return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
	})
}

// forgetAddresses removes host-local's state if it holds no pod's address.
func (n *Network) forgetAddresses() (changed []string, err error) {
	dir := filepath.Join(n.options.DataDir, networkName)
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
	// Fails if anything else is in it.
	_ = os.Remove(n.options.DataDir)
	return []string{dir + " is removed: no pod has an address"}, nil
}

func join[T fmt.Stringer](all []T) string {
	texts := make([]string, len(all))
	for i, one := range all {
		texts[i] = one.String()
	}
	return strings.Join(texts, " and ")
}
