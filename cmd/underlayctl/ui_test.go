package main_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/internal/table"
	"github.com/underlay-ccm/underlay/internal/webui"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
)

// live tests the running page, with --watch beside it: the state of a joining Node is shown without
// a reload, with read-only permissions.
func (l *lab) live(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, l.binary, "ui")
	cmd.Env = []string{"HOME=" + t.TempDir(), "HCLOUD_TOKEN=" + cluster.Token, "KUBECONFIG=" + l.kubeconfig}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	shownRemarks := bufio.NewScanner(out)
	shownRemarks.Scan()
	url, is := strings.CutPrefix(shownRemarks.Text(), "The page is at ")
	if !is || !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Fatalf("it says %q", shownRemarks.Text())
	}
	page := fetched(ctx, t, url)
	if !strings.Contains(page, "<title>Underlay</title>") {
		t.Errorf("the page is %q", page)
	}
	state := func(name string, want func(*table.Row) bool) {
		// Polled every two seconds, as by a browser.
		for ; ctx.Err() == nil; time.Sleep(survey.ShortestPause) {
			text := fetched(ctx, t, url+"view")
			if strings.Contains(text, cluster.Token) {
				t.Fatal("the page has the cloud's token")
			}
			var v webui.View
			if err := json.Unmarshal([]byte(text), &v); err != nil {
				t.Fatal(err)
			}
			var found *table.Row
			if nodes := v.Parts[1]; nodes.ID == "nodes" && len(nodes.Tables) > 0 {
				if i := slices.IndexFunc(nodes.Tables[0].Rows, func(r table.Row) bool { return r.About == "Node/"+name }); i >= 0 {
					found = &nodes.Tables[0].Rows[i]
				}
			}
			if want(found) {
				return
			}
		}
		t.Fatalf("%s is never as it should be: %v", name, ctx.Err())
	}
	watch := l.watch(ctx, t)
	watch.until(t, "worker-1", true)
	serves := func(r *table.Row) bool {
		return r != nil && strings.Contains(r.Cells[1].Text, ",") && r.Cells[2].Text == survey.RouteStands
	}
	state("worker-1", serves)
	if err := l.AddMachine(ctx, cluster.Machine{Name: "worker-live"}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	state("worker-live", func(r *table.Row) bool { return r != nil })
	t.Logf("a Node that joined is shown after %s", time.Since(began).Round(10*time.Millisecond))
	state("worker-live", serves)
	watch.until(t, "worker-live", true)
	t.Logf("and that it serves after %s", time.Since(began).Round(10*time.Millisecond))
	var signals table.Page
	if err := json.Unmarshal([]byte(fetched(ctx, t, url+"inspect?about=Node/worker-live")), &signals); err != nil {
		t.Fatal(err)
	}
	var timeline []struct{ Source, What string }
	for _, r := range signals.Tables[1].Rows {
		timeline = append(timeline, struct{ Source, What string }{r.Cells[1].Text, r.Cells[2].Text})
	}
	expectInOrder(t, timeline, "server created", "Node created", "NetworkUnavailable=False RouteCreated")
	if err := l.DeleteServer("worker-live"); err != nil {
		t.Log(err) // the machine reports that its server was deleted
	}
	state("worker-live", func(r *table.Row) bool { return r == nil })
	watch.until(t, "worker-live", false)
	watch.end(t)
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	for shownRemarks.Scan() {
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after Ctrl-C: %v", err)
	}
}

func opened(ctx context.Context, t *testing.T, url string) io.ReadCloser {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if answer.StatusCode != http.StatusOK {
		t.Fatal(fmt.Sprint(url, ": ", answer.Status))
	}
	return answer.Body
}

func fetched(ctx context.Context, t *testing.T, url string) string {
	t.Helper()
	body := opened(ctx, t, url)
	defer body.Close()
	text, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
