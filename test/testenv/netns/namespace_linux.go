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

// runLimit is how long a program of Namespace.Run may take.
const runLimit = 20 * time.Second

// Namespace is a network namespace without a name. It lives until it is closed
// and the last process, socket and interface pair in it is gone; and never longer
// than this process and those that it started in it.
type Namespace struct {
	file *os.File
	fd   uintptr // its number, for other programs
}

// Open makes a namespace with its loopback up. Nobody waits for duplicate IPv6
// addresses; still only one that is added with nodad is usable at once.
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

// Current is the namespace that the process is in.
func Current() (*Namespace, error) {
	n := &Namespace{}
	err := onThread(n.hold)
	if err != nil {
		return nil, fmt.Errorf("opening the own network namespace: %w", err)
	}
	return n, nil
}

// At opens the namespace that a file stands for, such as one below /run/netns or /proc/PID/ns/net.
func At(path string) (*Namespace, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening a network namespace: %w", err)
	}
	return &Namespace{file: file, fd: file.Fd()}, nil
}

// hold takes hold of the namespace that the thread is in.
func (n *Namespace) hold() (err error) {
	if n.file, err = os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())); err == nil {
		n.fd = n.file.Fd()
	}
	return err
}

// Close lets go of the namespace. Who is in it may finish; nobody else enters.
func (n *Namespace) Close() { _ = n.file.Close() }

// Path names the namespace to other programs, until it is closed.
func (n *Namespace) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.fd) }

// Do calls f on a thread that is in the namespace. What f starts with go is not;
// sockets that f opens stay in the namespace for good. f must not end a test.
func (n *Namespace) Do(f func()) error {
	err := onThread(func() error {
		// By the file, not by its number: that may be another file's by now.
		file, err := n.file.SyscallConn()
		if err != nil {
			return err
		}
		var entered error
		if err := file.Control(func(fd uintptr) { entered = unix.Setns(int(fd), unix.CLONE_NEWNET) }); err != nil || entered != nil {
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

// Run runs a program in the namespace and returns what it says on both outputs.
func (n *Namespace) Run(ctx context.Context, program string, args ...string) (string, error) {
	return n.Feed(ctx, "", program, args...)
}

// Feed is Run with text as the program's standard input. The program dies with
// this process.
func (n *Namespace) Feed(ctx context.Context, text, program string, args ...string) (string, error) {
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
func (n *Namespace) Listen(ctx context.Context, network, address string) (l net.Listener, err error) {
	entered := n.Do(func() { l, err = new(net.ListenConfig).Listen(ctx, network, address) })
	return l, errors.Join(entered, err)
}

// ListenPacket is net.ListenPacket in the namespace.
func (n *Namespace) ListenPacket(ctx context.Context, network, address string) (c net.PacketConn, err error) {
	entered := n.Do(func() { c, err = new(net.ListenConfig).ListenPacket(ctx, network, address) })
	return c, errors.Join(entered, err)
}

// Dial is net.Dial in the namespace. The address is an IP address with a port,
// no name.
func (n *Namespace) Dial(ctx context.Context, network, address string) (c net.Conn, err error) {
	entered := n.Do(func() { c, err = new(net.Dialer).DialContext(ctx, network, address) })
	return c, errors.Join(entered, err)
}

// Connect joins two namespaces by a pair of interfaces that are up.
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
			// The first thread never ends, and its namespace is what the process's is
			// taken for. While it is held here, another one is found.
			defer runtime.UnlockOSThread()
			done <- onThread(f)
			return
		}
		done <- f() // never unlocked: the thread is of no use to others
	}()
	return <-done
}
