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
	"github.com/underlay-ccm/underlay/internal/webui"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
)

// live is the page at work, and --watch beside it: what a Node is that joins is seen
// without asking, with the rights of somebody who may only look.
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
	said := bufio.NewScanner(out)
	said.Scan()
	url, is := strings.CutPrefix(said.Text(), "The page is at ")
	if !is || !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Fatalf("it says %q", said.Text())
	}
	page := fetched(ctx, t, url)
	if !strings.Contains(page, "<title>Underlay</title>") {
		t.Errorf("the page is %q", page)
	}
	stream := opened(ctx, t, url+"stream")
	defer stream.Close()
	views := bufio.NewScanner(stream)
	views.Buffer(nil, 4<<20)
	state := func(name string, want func(webui.Machine) bool) {
		for views.Scan() {
			text, is := strings.CutPrefix(views.Text(), "data: ")
			if !is {
				continue
			}
			var m struct{ View webui.View }
			if err := json.Unmarshal([]byte(text), &m); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(text, cluster.Token) {
				t.Fatal("the page has the cloud's token")
			}
			for _, g := range m.View.Groups {
				if slices.ContainsFunc(g.Machines, func(x webui.Machine) bool { return x.Name == name && want(x) }) {
					return
				}
			}
		}
		t.Fatalf("%s is never as it should be: %v", name, ctx.Err())
	}
	watch := l.watch(ctx, t)
	watch.until(t, "worker-1", true)
	serves := func(m webui.Machine) bool { return m.Tone == webui.OK && len(m.Ranges) == 2 }
	state("worker-1", serves)
	if err := l.AddMachine(ctx, cluster.Machine{Name: "worker-live"}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	state("worker-live", func(webui.Machine) bool { return true })
	t.Logf("a Node that joined is shown after %s", time.Since(began).Round(10*time.Millisecond))
	state("worker-live", serves)
	watch.until(t, "worker-live", true)
	t.Logf("and that it serves after %s", time.Since(began).Round(10*time.Millisecond))
	var told survey.Inspection
	if err := json.Unmarshal([]byte(fetched(ctx, t, url+"inspect?id=node/worker-live")), &told); err != nil {
		t.Fatal(err)
	}
	expectInOrder(t, told, "server created", "Node created", "NetworkUnavailable=False RouteCreated")
	if err := l.DeleteServer("worker-live"); err != nil {
		t.Log(err) // the machine says that it lost its server
	}
	state("worker-live", func(m webui.Machine) bool { return m.Gone })
	watch.until(t, "worker-live", false)
	watch.end(t)
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	for said.Scan() {
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
