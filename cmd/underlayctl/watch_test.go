package main_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/test/testenv/cluster"
)

// watch is --watch at work: a Node that joins is told of as it happens, each time in a
// document of its own, with the rights of somebody who may only look.
func (l *lab) watch(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, l.binary, "nodes", "--watch", "-o", "json")
	cmd.Env = []string{"HOME=" + t.TempDir(), "HCLOUD_TOKEN=" + cluster.Token, "KUBECONFIG=" + l.kubeconfig}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	documents := bufio.NewScanner(out)
	documents.Buffer(nil, 4<<20)
	type node struct {
		Name     string
		PodCIDRs []netip.Prefix
		Route    struct{ State string }
	}
	until := func(what string, shown bool, want func(node) bool) {
		for documents.Scan() {
			var view struct{ Nodes []node }
			if err := json.Unmarshal(documents.Bytes(), &view); err != nil {
				t.Fatalf("%s: %v", documents.Text(), err)
			}
			if slices.ContainsFunc(view.Nodes, want) == shown {
				return
			}
		}
		t.Fatalf("%s is never shown: %v", what, ctx.Err())
	}
	until("worker-1", true, func(n node) bool { return n.Name == "worker-1" })
	if err := l.AddMachine(ctx, cluster.Machine{Name: "worker-watched"}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	serves := func(n node) bool {
		return n.Name == "worker-watched" && len(n.PodCIDRs) == 2 && n.Route.State == "stands"
	}
	until("the route of a Node that joins", true, serves)
	t.Logf("the route of a Node that joined is shown after %s", time.Since(began).Round(10*time.Millisecond))
	if err := l.DeleteServer("worker-watched"); err != nil {
		t.Log(err) // the machine says that it lost its server
	}
	until("that its server is gone", false, serves)
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	for documents.Scan() {
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after Ctrl-C: %v", err)
	}
}
