// Package netns gives tests network namespaces of their own, as root: without
// names, so that nothing is left behind however a test ends. Who isn't root is
// told so, and the test is skipped.
//
// It must never change the namespace of the process itself: whatever happens in
// one of these happens on a thread that ends with it.
package netns

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Space is a network namespace. It lives until its test ends.
type Space struct {
	t    testing.TB
	file *os.File
}

// New makes a namespace with its loopback up. Nobody waits for duplicate IPv6
// addresses; still only one that is added with nodad is usable at once.
func New(t testing.TB) *Space {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces take root")
	}
	s := &Space{t: t}
	if err := onThread(s.open); err != nil {
		t.Fatalf("making a network namespace: %v", err)
	}
	t.Cleanup(func() { _ = s.file.Close() })
	s.Run("ip", "link", "set", "lo", "up")
	for _, key := range []string{"default", "all"} {
		s.Sysctl("net/ipv6/conf/"+key+"/accept_dad", "0")
	}
	return s
}

func (s *Space) open() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	file, err := os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
	s.file = file
	return err
}

// Path names the namespace to other programs, while its test lasts.
func (s *Space) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), s.file.Fd()) }

// Do calls f on a thread that is in the namespace. What f starts with go is not;
// sockets that f opens stay in the namespace for good. f must not end the test.
func (s *Space) Do(f func()) {
	s.t.Helper()
	err := onThread(func() error {
		if err := unix.Setns(int(s.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		f()
		return nil
	})
	if err != nil {
		s.t.Fatalf("entering a network namespace: %v", err)
	}
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

// Run runs a program in the namespace and returns what it says.
func (s *Space) Run(program string, args ...string) string {
	s.t.Helper()
	out, err := s.Try(program, args...)
	if err != nil {
		s.t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return out
}

// Try is Run for what may fail.
func (s *Space) Try(program string, args ...string) (string, error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), 20*time.Second)
	defer cancel()
	var out []byte
	var err error
	s.Do(func() { out, err = exec.CommandContext(ctx, program, args...).CombinedOutput() })
	return string(out), err
}

// Sysctl sets a value of the namespace.
func (s *Space) Sysctl(key, value string) {
	s.t.Helper()
	var err error
	s.Do(func() { err = os.WriteFile("/proc/sys/"+key, []byte(value), 0) })
	if err != nil {
		s.t.Fatalf("sysctl %s: %v", key, err)
	}
}

// Link joins two namespaces by a pair of interfaces that are up.
func Link(a *Space, nameA string, b *Space, nameB string) {
	a.t.Helper()
	a.Run("ip", "link", "add", nameA, "type", "veth", "peer", "name", nameB, "netns", b.Path())
	a.Run("ip", "link", "set", nameA, "up")
	b.Run("ip", "link", "set", nameB, "up")
}
