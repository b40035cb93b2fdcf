//go:build linux

// Package packets sends real packets through whole clusters in network namespaces: pods that the
// real CNI plugins attached, on machines with the real agent and kube-proxy, with the real manager
// beside them. Each test is named after the property that must hold.
package packets

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/underlay-ccm/underlay/test/testenv/complete"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

// binaries are the programs under test, set once before any test runs.
var binaries netlab.Options

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	err := netlab.Enter()
	if err != nil && !errors.Is(err, netlab.ErrNotRoot) {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if !netlab.Entered() || os.Getenv("CNI_PATH") == "" {
		return m.Run() // where each test logs why it is skipped
	}
	if dir := os.Getenv(victim); dir != "" {
		return beVictim(dir)
	}
	folder, err := os.MkdirTemp("", "underlay-packets-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(folder)
	if err := binaries.Binaries(context.Background(), folder); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// needLab skips a test on hosts that can't run a lab.
func needLab(t *testing.T) {
	t.Helper()
	if !netlab.Entered() {
		t.Skip("not root: a lab is made of network namespaces")
	}
	if os.Getenv("CNI_PATH") == "" {
		complete.Skip(t, "CNI_PATH names no folder with the CNI plugins; make cni builds them")
	}
}

// start starts a lab for a test, which is skipped on hosts that can't run one. The test fails if
// the lab leaves anything behind.
func start(t *testing.T, o netlab.Options) *netlab.Lab {
	t.Helper()
	needLab(t)
	o.Manager, o.Agent, o.Dir = binaries.Manager, binaries.Agent, t.TempDir()
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(netlab.Logs(o.Dir, 40))
		}
	})
	before := held(t)
	t.Cleanup(func() { expectNothingLeft(t, before) })
	f, err := netlab.Start(context.WithoutCancel(t.Context()), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Err(); err != nil {
			t.Error(err)
		}
		f.Stop()
	})
	return f
}
