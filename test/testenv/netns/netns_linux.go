// Package netns provides tests with network namespaces of their own, as root: without names, so
// that none is left behind however a test ends. Without root the test is skipped.
//
// It must never change the namespace of the process itself: it enters namespaces only on threads
// that end afterwards.
package netns

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"
)

// Space is the network namespace of a test. It exists until its test ends.
type Space struct {
	t  testing.TB
	ns *Namespace
}

// New creates a namespace with its loopback up, as Open does.
func New(t testing.TB) *Space {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces take root")
	}
	ns, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ns.Close)
	return &Space{t: t, ns: ns}
}

// Path is a path of the namespace for other programs, while its test lasts.
func (s *Space) Path() string { return s.ns.Path() }

// Do calls f on a thread that is in the namespace. Goroutines that f starts are not; sockets that f
// opens remain in the namespace. f must not end the test.
func (s *Space) Do(f func()) {
	s.t.Helper()
	if err := s.ns.Do(f); err != nil {
		s.t.Fatal(err)
	}
}

// Run runs a program in the namespace and returns its output.
func (s *Space) Run(program string, args ...string) string {
	s.t.Helper()
	out, err := s.ns.Run(s.context(), program, args...)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// Try is Run for a program that may fail: an exit status that isn't 0 is an *exec.ExitError.
func (s *Space) Try(program string, args ...string) (string, error) {
	s.t.Helper()
	out, err := s.ns.Run(s.context(), program, args...)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return out, exit
	}
	return out, err
}

// Sysctl sets a value of the namespace.
func (s *Space) Sysctl(key, value string) {
	s.t.Helper()
	if err := s.ns.Sysctl(key, value); err != nil {
		s.t.Fatal(err)
	}
}

// context outlives the test's own, which ends before its cleanups run.
func (s *Space) context() context.Context { return context.WithoutCancel(s.t.Context()) }

// Link joins two namespaces by a pair of interfaces, both up.
func Link(a *Space, nameA string, b *Space, nameB string) {
	a.t.Helper()
	if err := Connect(a.context(), a.ns, nameA, b.ns, nameB); err != nil {
		a.t.Fatal(err)
	}
}
