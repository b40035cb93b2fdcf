//go:build linux

package machine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/underlay-ccm/underlay/test/testenv/netns"
	"github.com/underlay-ccm/underlay/test/testenv/process"
)

// Time limits of a machine, and the interval of polls.
const (
	bootWithin  = 30 * time.Second
	readyWithin = 60 * time.Second // containerd
	goneWithin  = 10 * time.Second // its control groups
	lookEvery   = 20 * time.Millisecond
)

// path is the PATH of all programs on a machine. The replacing scripts come first.
const path = "/etc/machine/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Options configure a machine.
type Options struct {
	// Name is its host name.
	Name string
	// Dir holds all its files and logs. It is created, and removed with the machine. Its file
	// system has to support overlays, such as ext4.
	Dir string
	// Network is the namespace of its network. The caller closes it.
	Network *netns.Namespace
	// Programs come from Build.
	Programs Programs
}

// Machine is a machine. Its methods may be called from several goroutines, except those that switch
// it on and off.
type Machine struct {
	o     Options
	group string           // its control groups, in every hierarchy
	first *process.Process // nil: it is off
	init  int              // its first process, by the host's process ID
}

// New creates a machine that is off.
func New(ctx context.Context, o Options) (*Machine, error) {
	if err := Supported(); err != nil {
		return nil, fmt.Errorf("make machine %s: %w", o.Name, err)
	}
	if !filepath.IsAbs(o.Dir) {
		return nil, fmt.Errorf("make machine %s: Dir %q: give an absolute path", o.Name, o.Dir)
	}
	sweepGroups()
	m := &Machine{o: o, group: fmt.Sprintf("%s%d-%.4x", groupPrefix, os.Getpid(), sha256.Sum256([]byte(o.Dir)))}
	if err := m.install(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("make machine %s: %w", o.Name, err), m.Remove())
	}
	return m, nil
}

// Name is the machine's host name.
func (m *Machine) Name() string { return m.o.Name }

// SetNetwork moves a machine that is off into another network.
func (m *Machine) SetNetwork(network *netns.Namespace) { m.o.Network = network }

// Boot switches the machine on. It returns when the machine's init runs, which then starts the
// installed services.
func (m *Machine) Boot(ctx context.Context) error {
	if m.first != nil {
		return fmt.Errorf("boot machine %s: it is on", m.o.Name)
	}
	if err := watchable(watchers); err != nil {
		return fmt.Errorf("boot machine %s: %w", m.o.Name, err)
	}
	var err error
	m.first, err = process.Start(process.Command{
		Name: "machine", Path: "nsenter", Dir: m.o.Dir,
		Args: []string{"--net=" + m.o.Network.Path(), "--", m.file("boot"), m.group, m.o.Dir, m.o.Programs.Folder, m.o.Name},
	})
	if err == nil {
		err = m.awaitInit(ctx)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("boot machine %s: %w", m.o.Name, err), m.PullPlug())
	}
	return nil
}

// watchers is more inotify instances than one machine uses: kubelet, containerd, kube-proxy and
// pods.
const watchers = 20

// watchable returns an error if this user has fewer inotify instances left. Without them kube-proxy
// and kubelet exit after their start.
func watchable(instances int) error {
	for range instances {
		watcher, err := syscall.InotifyInit1(syscall.IN_CLOEXEC)
		if err != nil {
			return fmt.Errorf("fewer than %d inotify instances are left for its programs (%w): "+
				"end other machines, or raise the limit: sysctl fs.inotify.max_user_instances=1024", instances, err)
		}
		defer syscall.Close(watcher)
	}
	return nil
}

// awaitInit waits for the machine's first process to be ready.
func (m *Machine) awaitInit(ctx context.Context) error {
	return await(ctx, bootWithin, func() (bool, error) {
		if m.first.Ended() {
			return false, m.first.Failure(m.first.Died())
		}
		// Until init runs, the process has other children, which use the host's files.
		if init := child(m.first.PID()); init != 0 && exists(fmt.Sprintf("/proc/%d/root/run/units/ready", init)) {
			m.init = init
		}
		return m.init != 0, nil
	})
}

// child returns the only child of a process; 0 if there is none.
func child(pid int) (child int) {
	children, err := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", pid))
	if err != nil {
		return 0
	}
	// None is 0.
	_, _ = fmt.Sscan(string(children), &child)
	return child
}

// PullPlug ends everything that runs on the machine at once, and waits until it has ended. The
// machine's files remain. A machine that is off stays off.
func (m *Machine) PullPlug() error {
	if m.first == nil {
		return nil
	}
	if m.init != 0 {
		// The kernel ends all others with it, before its parent is notified.
		_ = syscall.Kill(m.init, syscall.SIGKILL)
		<-m.first.Done()
	}
	m.first.Kill()
	m.first, m.init = nil, 0
	if err := removeGroups(m.group); err != nil {
		return fmt.Errorf("pull the plug of machine %s: %w", m.o.Name, err)
	}
	return nil
}

// Remove switches the machine off and removes all its files.
func (m *Machine) Remove() error {
	off := m.PullPlug()
	if err := os.RemoveAll(m.o.Dir); err != nil {
		off = errors.Join(off, fmt.Errorf("remove machine %s: %w", m.o.Name, err))
	}
	return off
}

// Command is a program to run on the machine, by its name in the machine's PATH. It ends with the
// context.
func (m *Machine) Command(ctx context.Context, args ...string) *exec.Cmd {
	enter := []string{
		fmt.Sprintf("--target=%d", m.init), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--",
		"/usr/bin/env", "-i", "PATH=" + path, "HOME=/root", "LANG=C.UTF-8",
	}
	cmd := exec.CommandContext(ctx, "nsenter", append(enter, args...)...)
	// nsenter has the program as its child.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// Run runs a program on the machine and returns its standard output. The error contains both
// outputs.
func (m *Machine) Run(ctx context.Context, args ...string) (string, error) {
	return m.Feed(ctx, nil, args...)
}

// Feed is Run with a standard input.
func (m *Machine) Feed(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	if m.init == 0 {
		return "", fmt.Errorf("run %s on machine %s: it is off", args[0], m.o.Name)
	}
	cmd := m.Command(ctx, args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &errs
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return out.String(), fmt.Errorf("run %q on machine %s: %w\n%s%s", strings.Join(args, " "), m.o.Name, err, &out, &errs)
	}
	return out.String(), nil
}

// file is the path of one of the machine's own files on the host.
func (m *Machine) file(name string) string { return filepath.Join(m.o.Dir, name) }

// Root is the machine's root in the host's file system. While the machine is off, it contains only
// the files that survive a reboot, without /usr. Absolute links below it point to the host's files.
func (m *Machine) Root() string {
	if m.init != 0 {
		return fmt.Sprintf("/proc/%d/root", m.init)
	}
	return m.file("root")
}

func (m *Machine) root(path string) string { return filepath.Join(m.Root(), path) }

// WriteFile writes a file of the machine, and creates its folder.
func (m *Machine) WriteFile(path string, data []byte, mode fs.FileMode) error {
	err := os.MkdirAll(filepath.Dir(m.root(path)), 0o755)
	if err == nil {
		err = os.WriteFile(m.root(path), data, mode)
	}
	if err == nil {
		err = os.Chmod(m.root(path), mode) // an existing file would keep its mode
	}
	if err != nil {
		return fmt.Errorf("write %s of machine %s: %w", path, m.o.Name, err)
	}
	return nil
}

// ReadFile reads a file of the machine.
func (m *Machine) ReadFile(path string) ([]byte, error) {
	data, err := os.ReadFile(m.root(path))
	if err != nil {
		return nil, fmt.Errorf("read %s of machine %s: %w", path, m.o.Name, err)
	}
	return data, nil
}

// Import imports the images of an archive into the machine's containerd, once it runs.
func (m *Machine) Import(ctx context.Context, archive string) error {
	file, err := os.Open(archive)
	if err != nil {
		return fmt.Errorf("import images into machine %s: %w", m.o.Name, err)
	}
	defer file.Close()
	var last error
	err = await(ctx, readyWithin, func() (bool, error) {
		_, last = m.Run(ctx, "ctr", "version")
		return last == nil, nil
	})
	if err != nil {
		return errors.Join(fmt.Errorf("import images into machine %s: its containerd doesn't answer: %w", m.o.Name, err), last)
	}
	_, err = m.Feed(ctx, file, "ctr", "--namespace", "k8s.io", "images", "import", "-")
	return err
}

// logLines is the number of lines that Logs quotes of each log.
const logLines = 40

// Logs returns the ends of the logs of the machine's programs, for a test that failed.
func (m *Machine) Logs() string {
	var out strings.Builder
	for _, log := range []string{m.file("machine.log"), m.file("root/var/log/containerd.log"), m.file("root/var/log/kubelet.log")} {
		content, err := os.ReadFile(log)
		if err != nil {
			continue
		}
		// Of containerd's log, only unusual lines.
		lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(string(content)), "\n"), func(line string) bool {
			return strings.Contains(line, "level=info")
		})
		fmt.Fprintf(&out, "--- %s of machine %s\n%s\n", filepath.Base(log), m.o.Name, strings.Join(lines[max(0, len(lines)-logLines):], "\n"))
	}
	return out.String()
}

// await polls until done returns true or an error, or the time is over.
func await(ctx context.Context, within time.Duration, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited %s: %w", within, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
