// Package netns gives tests network namespaces of their own, as root: without
// names, so that nothing is left behind however a test ends. Who isn't root is
// told so, and the test is skipped.
//
// It must never change the namespace of the process itself: whatever happens in
// one of these happens on a thread that ends with it.
package netns

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"
)

// Space is the network namespace of a test. It lives until its test ends.
type Space struct {
	t  testing.TB
	ns *Namespace
}

// New makes a namespace with its loopback up, as Open does.
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

// Path names the namespace to other programs, while its test lasts.
func (s *Space) Path() string { return s.ns.Path() }

// Do calls f on a thread that is in the namespace. What f starts with go is not;
// sockets that f opens stay in the namespace for good. f must not end the test.
func (s *Space) Do(f func()) {
	s.t.Helper()
	if err := s.ns.Do(f); err != nil {
		s.t.Fatal(err)
	}
}

// Run runs a program in the namespace and returns what it says.
func (s *Space) Run(program string, args ...string) string {
	s.t.Helper()
	out, err := s.ns.Run(s.context(), program, args...)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// Try is Run for what may fail: an exit status that isn't 0 is an
// *exec.ExitError.
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

// Link joins two namespaces by a pair of interfaces that are up.
func Link(a *Space, nameA string, b *Space, nameB string) {
	a.t.Helper()
	if err := Connect(a.context(), a.ns, nameA, b.ns, nameB); err != nil {
		a.t.Fatal(err)
	}
}
