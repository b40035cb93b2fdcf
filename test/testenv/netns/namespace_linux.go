package netns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// runLimit limits a program of Namespace.Run.
const runLimit = 20 * time.Second

// Namespace is a network namespace without a name. It exists until it is closed and the last
// process, socket and interface pair in it is gone; and never longer than this process and those
// that it started in it.
type Namespace struct {
	file *os.File
	fd   uintptr // its file descriptor, for other programs
}

// Open creates a namespace with its loopback up. Duplicate address detection is off; still only an
// IPv6 address that is added with nodad is usable at once.
func Open() (*Namespace, error) {
	n := &Namespace{}
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		return n.hold()
	})
	if err != nil {
		return nil, fmt.Errorf("making a network namespace: %w", err)
	}
	_, err = n.Run(context.Background(), "ip", "link", "set", "lo", "up")
	for _, key := range []string{"default", "all"} {
		err = errors.Join(err, n.Sysctl("net/ipv6/conf/"+key+"/accept_dad", "0"))
	}
	if err != nil {
		n.Close()
		return nil, fmt.Errorf("preparing a network namespace: %w", err)
	}
	return n, nil
}

// Current returns the namespace of the process.
func Current() (*Namespace, error) {
	n := &Namespace{}
	err := onThread(n.hold)
	if err != nil {
		return nil, fmt.Errorf("opening the own network namespace: %w", err)
	}
	return n, nil
}

// At opens the namespace of a file, such as one below /run/netns or /proc/PID/ns/net.
func At(path string) (*Namespace, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening a network namespace: %w", err)
	}
	return &Namespace{file: file, fd: file.Fd()}, nil
}

// hold opens the namespace of the thread.
func (n *Namespace) hold() (err error) {
	if n.file, err = os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())); err == nil {
		n.fd = n.file.Fd()
	}
	return err
}

// Close closes the namespace. Threads in it may finish; no more can enter.
func (n *Namespace) Close() { _ = n.file.Close() }

// Path is a path of the namespace for other programs, until it is closed.
func (n *Namespace) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.fd) }

// Do calls f on a thread that is in the namespace. Goroutines that f starts are not; sockets that f
// opens remain in the namespace. f must not end a test.
func (n *Namespace) Do(f func()) error {
	err := onThread(func() error {
		// By the file, not by its number: that may belong to another file by now.
		file, err := n.file.SyscallConn()
		if err != nil {
			return err
		}
		var entered error
		if err := file.Control(func(fd uintptr) {
			entered = unix.Setns(int(fd), unix.CLONE_NEWNET)
		}); err != nil || entered != nil {
			return errors.Join(err, entered)
		}
		f()
		return nil
	})
	if err != nil {
		return fmt.Errorf("entering a network namespace: %w", err)
	}
	return nil
}

// Run runs a program in the namespace and returns both its outputs.
func (n *Namespace) Run(ctx context.Context, program string, args ...string) (string, error) {
	return n.Feed(ctx, "", program, args...)
}

// Feed is Run with text as the program's standard input. The program dies with
// this process.
func (n *Namespace) Feed(
	ctx context.Context, text, program string, args ...string,
) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	var out []byte
	var failed error
	err := n.Do(func() {
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Stdin = strings.NewReader(text)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		out, failed = cmd.CombinedOutput()
	})
	if err := errors.Join(err, failed); err != nil {
		return string(out), fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}

// Sysctl sets a value of the namespace, by its path below /proc/sys.
func (n *Namespace) Sysctl(key, value string) error {
	var failed error
	err := n.Do(func() { failed = os.WriteFile("/proc/sys/"+key, []byte(value), 0) })
	if err := errors.Join(err, failed); err != nil {
		return fmt.Errorf("sysctl %s: %w", key, err)
	}
	return nil
}

// Listen is net.Listen in the namespace.
func (n *Namespace) Listen(
	ctx context.Context, network, address string,
) (l net.Listener, err error) {
	entered := n.Do(func() { l, err = new(net.ListenConfig).Listen(ctx, network, address) })
	return l, errors.Join(entered, err)
}

// ListenPacket is net.ListenPacket in the namespace.
func (n *Namespace) ListenPacket(
	ctx context.Context, network, address string,
) (c net.PacketConn, err error) {
	entered := n.Do(func() { c, err = new(net.ListenConfig).ListenPacket(ctx, network, address) })
	return c, errors.Join(entered, err)
}

// Dial is net.Dial in the namespace. The address is an IP address with a port,
// no name.
func (n *Namespace) Dial(ctx context.Context, network, address string) (c net.Conn, err error) {
	entered := n.Do(func() { c, err = new(net.Dialer).DialContext(ctx, network, address) })
	return c, errors.Join(entered, err)
}

// Connect joins two namespaces by a pair of interfaces, both up.
func Connect(ctx context.Context, a *Namespace, nameA string, b *Namespace, nameB string) error {
	_, err := a.Run(ctx, "ip", "link", "add", nameA, "type", "veth", "peer", "name", nameB, "netns", b.Path())
	if err != nil {
		return err
	}
	_, errA := a.Run(ctx, "ip", "link", "set", nameA, "up")
	_, errB := b.Run(ctx, "ip", "link", "set", nameB, "up")
	return errors.Join(errA, errB)
}

// onThread calls f on a thread that ends with it.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The first thread never ends, and its namespace counts as the process's. While it is
			// locked here, another thread runs f.
			defer runtime.UnlockOSThread()
			done <- onThread(f)
			return
		}
		done <- f() // never unlocked, so the thread ends with the goroutine
	}()
	return <-done
}
