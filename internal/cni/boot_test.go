package cni

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/fsnotify/fsnotify"
)

// load selects and reads a configuration as containerd does (loadFromConfDir of
// github.com/containerd/go-cni): the first by name, and none if that is invalid.
func load(dir string) (*libcni.NetworkConfigList, error) {
	files, err := libcni.ConfFiles(dir, []string{".conf", ".conflist", ".json"})
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no network config found in %s", dir)
	}
	slices.Sort(files)
	return libcni.ConfListFromFile(files[0])
}

// boot empties the folders that a reboot empties.
func (m machine) boot(t *testing.T) {
	t.Helper()
	if err := os.RemoveAll(m.state); err != nil {
		t.Fatal(err)
	}
}

// After a boot no pod starts before the agent has set up the rest of the network, although the
// folder of configurations is on the disk; nor does one start in another network.
func TestAfterABootThereIsNoConfiguration(t *testing.T) {
	m := newMachine(t)
	put(t, filepath.Join(m.conf, "10-other.conflist"), `{"cniVersion":"1.0.0","name":"other","plugins":[{"type":"bridge"}]}`)
	if list, err := load(m.conf); err != nil || list.Name != "other" {
		t.Fatalf("before: %v, %v", list, err)
	}
	if _, err := m.apply(t, dualStack()); err != nil {
		t.Fatal(err)
	}
	if list, err := load(m.conf); err != nil || list.Name != networkName || len(list.Plugins) != 2 {
		t.Errorf("applied: %v, %v", list, err)
	}
	m.boot(t)
	if list, err := load(m.conf); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after a boot the runtime uses %v (%v)", list, err)
	}
	if changed, err := m.apply(t, dualStack()); err != nil || len(changed) != 1 {
		t.Errorf("after a boot: %q, %v", changed, err)
	}
	if list, err := load(m.conf); err != nil || list.Name != networkName {
		t.Errorf("applied again: %v, %v", list, err)
	}
}

// runtimeFolder is containerd's state of its folder. containerd reads it again after every event
// except creations and changes of mode (internal/cri/server/cni_conf_syncer.go).
type runtimeFolder struct {
	watcher *fsnotify.Watcher
	mu      sync.Mutex
	loaded  string
	err     error
}

func watchAsContainerd(t *testing.T, dir string) *runtimeFolder {
	t.Helper()
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = watcher.Close() })
	if err := errors.Join(os.MkdirAll(dir, 0o755), watcher.Add(dir)); err != nil {
		t.Fatal(err)
	}
	r := &runtimeFolder{watcher: watcher}
	read := func() {
		list, err := load(dir)
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.loaded, r.err = "", err; err == nil {
			r.loaded = string(list.Bytes)
		}
	}
	read()
	go func() {
		for event := range watcher.Events {
			if !event.Has(fsnotify.Chmod) && !event.Has(fsnotify.Create) {
				read()
			}
		}
	}()
	return r
}

func (r *runtimeFolder) expect(t *testing.T, what, content string) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		r.mu.Lock()
		loaded, err := r.loaded, r.err
		r.mu.Unlock()
		if loaded == content {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("%s: the runtime has %q (%v), want %q", what, loaded, err, content)
		case <-time.After(time.Millisecond):
		}
	}
}

// The runtime applies every change without a restart.
func TestTheRuntimeReceivesEveryChange(t *testing.T) {
	m := newMachine(t)
	runtime := watchAsContainerd(t, m.conf)
	content := func(want Desired) string {
		text, err := render(want, m.data)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	apply := func(want Desired) {
		t.Helper()
		if changed, err := m.apply(t, want); err != nil || len(changed) != 1 {
			t.Fatalf("%q, %v", changed, err)
		}
	}
	runtime.expect(t, "at first", "")
	apply(dualStack())
	runtime.expect(t, "the first time", content(dualStack()))

	smaller := dualStack()
	smaller.MTU = 1300
	apply(smaller)
	runtime.expect(t, "another MTU", content(smaller))

	m.boot(t)
	rebooted := watchAsContainerd(t, m.conf)
	rebooted.expect(t, "after a boot", "")
	apply(dualStack())
	rebooted.expect(t, "after a boot, applied", content(dualStack()))

	apply(Desired{})
	rebooted.expect(t, "withdrawn", "")
	if changed, err := m.apply(t, Desired{}); err != nil || len(changed) > 0 {
		t.Errorf("withdrawn again: %q, %v", changed, err)
	}
	apply(dualStack())
	rebooted.expect(t, "given again", content(dualStack()))

	// A process that ended between writing the file and the link.
	if err := errors.Join(os.Remove(m.file()), os.Symlink(m.file(), m.temporaryLink())); err != nil {
		t.Fatal(err)
	}
	put(t, m.file(), content(dualStack()))
	apply(dualStack())
	if got := names(t, m.conf); !slices.Equal(got, []string{FileName}) {
		t.Errorf("left are %q", got)
	}
	if _, err := m.Cleanup(t.Context()); err != nil {
		t.Fatal(err)
	}
	rebooted.expect(t, "cleaned up", "")
}

// The file of an earlier version is replaced by the link, and one of them exists at every moment.
func TestTheFileOfAnEarlierVersionIsReplaced(t *testing.T) {
	m := newMachine(t)
	content, err := render(dualStack(), m.data)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(m.conf, FileName)
	put(t, path, string(content))
	done, missed := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for {
			if _, err := load(m.conf); err != nil {
				n++
			}
			select {
			case <-done:
				missed <- n
				return
			default:
			}
		}
	}()
	changed, err := m.apply(t, dualStack())
	close(done)
	if n := <-missed; n > 0 {
		t.Errorf("the runtime found none %d times", n)
	}
	if target, linkErr := os.Readlink(path); err != nil || len(changed) != 1 || linkErr != nil ||
		target != m.file() {
		t.Errorf("%q, %v; it leads to %q (%v)", changed, err, target, linkErr)
	}
	put(t, filepath.Join(m.state, "other"), "theirs") // of another part
	m.boot(t)
	if list, err := load(m.conf); err == nil {
		t.Errorf("after a boot the runtime uses %v", list)
	}
}

// Nothing is withdrawn if the runtime doesn't use our configuration: a dangling link would keep it
// from its other network.
func TestWithdrawingNothing(t *testing.T) {
	m := newMachine(t)
	put(t, filepath.Join(m.conf, "10-other.conflist"), "theirs")
	if changed, err := m.apply(t, Desired{}); err != nil || len(changed) > 0 {
		t.Errorf("%q, %v", changed, err)
	}
	if got := names(t, m.conf); !slices.Equal(got, []string{"10-other.conflist"}) {
		t.Errorf("left are %q", got)
	}
}
