//go:build linux

// Package kerneltest gives tests a kernel's networking of their own: the test
// binary runs itself again in a new network namespace, so that whatever a test
// does to routes and interfaces is gone with the process, also when it fails.
//
// A package that uses it calls Main from TestMain, and Need in each test that
// changes anything. Without root, those are skipped and say so. It must never
// touch the namespace that it was started in.
package kerneltest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
)

// role is what a process of the test binary is for; set for its children.
const role = "UNDERLAY_KERNELTEST"

const (
	inside = "inside" // runs the tests in a namespace of its own
	peer   = "peer"   // keeps another namespace alive until its input ends
)

// Main runs the tests in a new network namespace, and does not return.
func Main(m *testing.M) {
	switch {
	case os.Getenv(role) == peer:
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	case os.Getenv(role) == inside:
		if err := up("lo"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	case os.Geteuid() != 0:
		os.Exit(m.Run())
	}
	cmd := again(inside, os.Args[1:])
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		os.Exit(max(1, exit.ExitCode()))
	case err != nil:
		fmt.Fprintln(os.Stderr, "running the tests in a network namespace:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// again prepares another process of this program in a new network namespace. It
// dies with the calling thread, which therefore must stay.
func again(as string, args []string) *exec.Cmd {
	runtime.LockOSThread()
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), role+"="+as)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL,
	}
	return cmd
}

// Need skips the test where it can't have a namespace.
func Need(t testing.TB) {
	t.Helper()
	if os.Getenv(role) != inside {
		t.Skip("not root: routes can't be changed in a network namespace of the test's own")
	}
}

func up(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("switching interface %s on: %w", name, err)
	}
	return nil
}
