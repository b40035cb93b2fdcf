//go:build linux

package packets

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/underlay-ccm/underlay/internal/connectivity"
	"github.com/underlay-ccm/underlay/internal/connectivity/cluster"
	testcluster "github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

// program is underlayctl connectivity as a user runs it.
type program struct{ binary, kubeconfig string }

// programOf builds it, with the permissions of a configuration, and a proxy in front of the API
// server that serves the pods' logs as kubelets would.
func programOf(t *testing.T, rights *rest.Config, kubelets *netlab.Kubelets) program {
	t.Helper()
	binary, err := testcluster.BuildReader(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(rights)
	if err != nil {
		t.Fatal(err)
	}
	host, err := url.Parse(rights.Host)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(host) },
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, is := strings.CutPrefix(r.URL.Path, "/api/v1/namespaces/"+cluster.Namespace+"/pods/")
		if name, is2 := strings.CutSuffix(name, "/log"); is && is2 && r.Method == http.MethodGet {
			content, err := kubelets.Log(name)
			if err != nil {
				http.Error(w, err.Error(), http.StatusNotFound)
				return
			}
			_, _ = w.Write(content)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	err = os.WriteFile(file, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: lab, cluster: {server: %q}}]
contexts: [{name: lab, context: {cluster: lab}}]
current-context: lab
`, server.URL), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return program{binary, file}
}

// run returns its output and its exit code. heard receives the lines of its progress; nil: they are
// ignored.
func (p program) run(
	t *testing.T, heard func(cmd *exec.Cmd, line string), args ...string,
) (string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.binary, append([]string{"connectivity"}, args...)...)
	cmd.Env = []string{"HOME=" + t.TempDir(), "KUBECONFIG=" + p.kubeconfig}
	var out bytes.Buffer
	cmd.Stdout = &out
	says := &said{heard: func(line string) {
		if heard != nil {
			heard(cmd, line)
		}
	}}
	cmd.Stderr = says
	err := cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	t.Logf("exit code %d: %s", cmd.ProcessState.ExitCode(), says.all.String())
	return out.String(), cmd.ProcessState.ExitCode()
}

type said struct {
	all   bytes.Buffer
	heard func(string)
}

func (s *said) Write(text []byte) (int, error) {
	for line := range strings.Lines(string(text)) {
		s.heard(strings.TrimSpace(line))
	}
	return s.all.Write(text)
}

// theProgram tests the output for a user, and the objects left behind.
func theProgram(t *testing.T, f *netlab.Lab, kubelets *netlab.Kubelets, rights *rest.Config) {
	p := programOf(t, rights, kubelets)
	usual := []string{"--image=underlay-agent", "--settle=4s"}
	out, code := p.run(t, nil, append(usual, "-o", "json")...)
	var r connectivity.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 || len(r.Nodes) != 2 ||
		len(r.Findings) > 0 || len(r.Cells) == 0 {
		t.Errorf("exit code %d, %d cells (%v):\n%s", code, len(r.Cells), err, out)
	}
	nothingLeft(t, f)

	// The image is unknown: this cluster has no DaemonSet.
	if _, code = p.run(t, nil); code != 3 {
		t.Errorf("without an image: exit code %d", code)
	}

	out, code = programOf(t, f.ControlPlane.AdminConfig(), kubelets).run(t, nil, append(usual, "--target=198.51.100.2:9")...)
	if code != 1 || !strings.Contains(out, "Pod to outside, IPv4: 0 of 2 open.") || !strings.Contains(out, "Remedy: ") {
		t.Errorf("with a target that is closed: exit code %d:\n%s", code, out)
	}
	nothingLeft(t, f)

	began := time.Now()
	_, code = p.run(t, func(cmd *exec.Cmd, line string) {
		if line == "trying" {
			_ = cmd.Process.Signal(syscall.SIGINT)
		}
	}, append(usual, "--target=192.0.2.99:9")...) // no host has it: it takes the time to settle
	if code != 3 {
		t.Errorf("after Ctrl-C the exit code is %d", code)
	}
	t.Logf("Ctrl-C took %s", time.Since(began).Round(time.Millisecond))
	nothingLeft(t, f)

	_, code = p.run(t, func(cmd *exec.Cmd, line string) {
		if line == "trying" {
			_ = cmd.Process.Kill()
		}
	}, usual...)
	left, err := f.Client.CoreV1().Pods(cluster.Namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(left.Items) == 0 || code != -1 {
		t.Fatalf("killed (%d), it left %d pods (%v): this test must see some", code, len(left.Items), err)
	}
	if out, code = p.run(t, nil, usual...); code != 3 {
		t.Errorf("beside another run: exit code %d:\n%s", code, out)
	}
	if out, code = p.run(t, nil, "clean"); code != 0 {
		t.Errorf("clean: exit code %d:\n%s", code, out)
	}
	nothingLeft(t, f)
}
