package main_test

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"testing"

	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
)

// changes is a running --watch: each change of the Nodes is a document of its own, with read-only
// permissions.
type changes struct {
	*exec.Cmd
	*bufio.Scanner
}

func (l *lab) watch(ctx context.Context, t *testing.T) changes {
	t.Helper()
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
	return changes{cmd, bufio.NewScanner(out)}
}

// until reads documents up to one that has, or hasn't, a Node with an existing route.
func (c changes) until(t *testing.T, name string, served bool) {
	t.Helper()
	for c.Scan() {
		var view shownNodes
		if err := json.Unmarshal(c.Bytes(), &view); err != nil {
			t.Fatalf("%s: %v", c.Text(), err)
		}
		found := false
		for _, n := range view.Nodes {
			found = found || n.Node == name && len(n.PodCIDRs) == 2 && n.Route == survey.RouteStands
		}
		if found == served {
			return
		}
	}
	t.Fatalf("no document says of %s that it is served: %t", name, served)
}

// end sends the signal of Ctrl-C.
func (c changes) end(t *testing.T) {
	t.Helper()
	if err := c.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	for c.Scan() {
	}
	if err := c.Wait(); err != nil {
		t.Errorf("after Ctrl-C: %v", err)
	}
}
