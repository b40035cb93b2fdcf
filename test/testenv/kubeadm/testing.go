//go:build linux

package kubeadm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/underlay-ccm/underlay/test/testenv/complete"
	"github.com/underlay-ccm/underlay/test/testenv/machine"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

// patience limits waits: what takes longer never happens.
const patience = 3 * time.Minute

// RunTests is the TestMain of packages that install clusters: it packs images, calls functions that
// add to their folder, and runs the tests in a lab's namespace.
func RunTests(m *testing.M, more ...func(ctx context.Context, folder string) error) int {
	if !netlab.Entered() && machine.Supported() != nil {
		// NeedMachines reports the missing requirement.
		if err := netlab.Enter(); err != nil && !errors.Is(err, netlab.ErrNotRoot) {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}
	folder, err := Enter(context.Background(), func(ctx context.Context) (string, error) {
		folder, err := Pack(ctx, os.Stderr)
		for _, put := range more {
			if err == nil {
				err = put(ctx, folder)
			}
		}
		return folder, err
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(folder)
	return m.Run()
}

// NeedMachines skips a test on hosts that can't run machines.
func NeedMachines(t testing.TB) {
	t.Helper()
	if err := machine.Supported(); err != nil {
		complete.Skip(t, err.Error())
	}
}

// TestCluster is a cluster that a test installs by a page. Errors end the test.
type TestCluster struct {
	*Cluster
	T    testing.TB
	Page *Page

	began time.Time
}

// StartT starts the cloud for a test, without servers. Everything ends with the test, and the state
// after a failed test is logged.
func StartT(t testing.TB, page string, o Options) *TestCluster {
	t.Helper()
	p, err := ReadPage(t.Context(), page)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	w := &TestCluster{Cluster: c, T: t, Page: p, began: time.Now()}
	t.Cleanup(w.end)
	return w
}

// end removes every machine, and logs the state after a failed test.
func (w *TestCluster) end() {
	if w.T.Failed() {
		w.dump()
	}
	if err := w.Stop(); err != nil {
		w.T.Error(err)
	}
}

// dump logs the state that is most useful for finding a fault.
func (w *TestCluster) dump() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.T.Context()), 30*time.Second)
	defer cancel()
	for _, look := range []string{
		"kubectl get nodes -o wide", "kubectl get pods -A -o wide", "kubectl get events -A --sort-by=.lastTimestamp | tail -40",
		"kubectl -n kube-system logs deployment/underlay-ccm --tail=30", "underlayctl doctor",
	} {
		if w.Servers[w.Admin] != nil {
			out, err := w.On(ctx, w.Admin, look)
			w.T.Logf("%s\n%s (%v)", look, out, err)
		}
	}
	for name, s := range w.Servers {
		w.T.Logf("%s:\n%s", name, s.Logs())
	}
}

// Step logs the progress of the test.
func (w *TestCluster) Step(format string, args ...any) {
	w.T.Logf("%5.1f s  %s", time.Since(w.began).Seconds(), fmt.Sprintf(format, args...))
}

// Run runs a command in a shell of a server and returns its output.
func (w *TestCluster) Run(name, command string) string {
	w.T.Helper()
	return w.Type(name, "", command)
}

// Type is Run with standard input.
func (w *TestCluster) Type(name, typed, command string) string {
	w.T.Helper()
	ctx, cancel := context.WithTimeout(w.T.Context(), patience)
	defer cancel()
	began := time.Now()
	out, err := w.Feed(ctx, name, typed, command)
	if err != nil {
		w.T.Fatalf("%s# %s\n%s\n%v", name, command, out, err)
	}
	if took := time.Since(began); took > 2*time.Second {
		w.Step("%.1f s for %s", took.Seconds(), command)
	}
	return out
}

// Follow is Run with a command of the page, in which each text is replaced by the next.
func (w *TestCluster) Follow(name, begins string, instead ...string) string {
	w.T.Helper()
	return w.FollowTyping(name, "", begins, instead...)
}

// FollowTyping is Follow with standard input.
func (w *TestCluster) FollowTyping(name, typed, begins string, instead ...string) string {
	w.T.Helper()
	command, err := w.Page.Command(begins, instead...)
	if err != nil {
		w.T.Fatal(err)
	}
	return w.Type(name, typed, command)
}

// Kubectl runs kubectl on the server for it.
func (w *TestCluster) Kubectl(args string) string {
	w.T.Helper()
	return w.Run(w.Admin, "kubectl "+args)
}

// Await polls until holds returns nil. Its last error is reported otherwise.
func (w *TestCluster) Await(what string, holds func(context.Context) error) {
	w.T.Helper()
	var last error
	err := wait.PollUntilContextTimeout(w.T.Context(), 200*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			// The last complete poll shows the cause; a timeout doesn't.
			if err := holds(ctx); ctx.Err() == nil {
				last = err
			}
			return last == nil, nil
		})
	if err := cmp.Or(last, err); err != nil {
		w.T.Fatalf("waiting for %s: %v", what, err)
	}
}

// Get reads objects into a value of an API type.
func (w *TestCluster) Get(ctx context.Context, into any, what string) error {
	out, err := w.On(ctx, w.Admin, "kubectl get -o json "+what)
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return json.Unmarshal([]byte(out), into)
}

// Join joins a server, by the page's command and the example's file.
func (w *TestCluster) Join(name string, instead ...string) {
	w.T.Helper()
	if err := w.PutJoin(w.T.Context(), name, instead...); err != nil {
		w.T.Fatal(err)
	}
	w.Follow(name, "kubeadm join")
}
