//go:build linux

package netlab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
)

// ErrNotRoot is the error of Enter without root.
var ErrNotRoot = errors.New("network namespaces take root")

// inside is set in the process that has a namespace of its own.
const inside = "UNDERLAY_NETLAB"

// Enter runs this program once more, in a new network namespace, and returns there. In the original
// process it returns only errors, such as ErrNotRoot; otherwise that process exits as the second
// one does. The second process handles signals that end or interrupt; it dies with the first.
func Enter() error {
	if os.Getenv(inside) != "" {
		return loopbackUp()
	}
	if os.Geteuid() != 0 {
		return ErrNotRoot
	}
	runtime.LockOSThread() // Pdeathsig refers to the thread
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL,
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting again in a network namespace: %w", err)
	}
	go func() {
		for s := range signals {
			// A terminal interrupts both processes.
			if s != syscall.SIGINT {
				_ = cmd.Process.Signal(s)
			}
		}
	}()
	err := cmd.Wait()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		os.Exit(max(1, exit.ExitCode())) // -1 after a signal
	case err != nil:
		return fmt.Errorf("running in a network namespace: %w", err)
	}
	os.Exit(0)
	return nil
}

// Entered reports whether Enter has given this process a namespace of its own.
func Entered() bool { return os.Getenv(inside) != "" }

func loopbackUp() error {
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return fmt.Errorf("switching the loopback on: %w: %s", err, out)
	}
	return nil
}
