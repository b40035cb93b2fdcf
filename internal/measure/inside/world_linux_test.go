package inside_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/internal/measure/inside"
	"github.com/underlay-ccm/underlay/test/testenv/complete"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
	"github.com/underlay-ccm/underlay/test/testenv/process"
)

// host is a server in a namespace, with the real program.
type host struct {
	*netns.Space
	*inside.Client
	credentials inside.Credentials
	program     *process.Process
	anybody     *http.Client
	v4, v6      netip.Addr
}

// loopback is where the program is asked in these tests, so that no test cuts that off.
var loopback = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), inside.Port)

// start starts the program as cloud-init does: as a file that is executed.
func start(t *testing.T, space *netns.Space, name string, lifetime time.Duration) *host {
	t.Helper()
	return startAt(t, space, name, lifetime, loopback)
}

// startAt starts it with arguments, to be asked elsewhere.
func startAt(
	t *testing.T, space *netns.Space, name string, lifetime time.Duration, at netip.AddrPort, arguments ...string,
) *host {
	t.Helper()
	if _, err := exec.LookPath("/usr/bin/python3"); err != nil {
		complete.Skip(t, "there is no /usr/bin/python3: install Debian's package python3")
	}
	h := &host{Space: space, credentials: newCredentials(t, name)}
	dir := t.TempDir()
	script := filepath.Join(dir, "part-001")
	if err := os.WriteFile(script, []byte(inside.UserData(h.credentials, lifetime)), 0o700); err != nil {
		t.Fatal(err)
	}
	var err error
	h.program, err = process.Start(process.Command{
		Name: name, Path: "nsenter", Dir: dir,
		Args: append([]string{"--net=" + space.Path(), "--", script}, arguments...),
		Env:  []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.program.Kill()
		if text, _ := os.ReadFile(h.program.Log); t.Failed() || bytes.Contains(text, []byte("Traceback")) {
			t.Errorf("the program of %s said:\n%s", name, text)
		}
	})
	h.Client = inside.New(h.credentials, at, dialer(space))
	t.Cleanup(h.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := h.Ready(ctx); err != nil {
		text, _ := os.ReadFile(h.program.Log)
		t.Fatalf("%v\n%s", err, text)
	}
	return h
}

// dialer dials from a namespace.
func dialer(space *netns.Space) inside.Dialer {
	return func(ctx context.Context, network, address string) (c net.Conn, err error) {
		space.Do(func() { c, err = new(net.Dialer).DialContext(ctx, network, address) })
		return c, err
	}
}

// pair is two servers on one link: "eth0" of both, 10.0.0.1 and 10.0.0.2, fd00::1 and fd00::2.
func pair(t *testing.T) (a, b *host) {
	t.Helper()
	left, right := netns.New(t), netns.New(t)
	netns.Link(left, "eth0", right, "eth0")
	address(left, "eth0", "10.0.0.1/24", "fd00::1/64")
	address(right, "eth0", "10.0.0.2/24", "fd00::2/64")
	a, b = start(t, left, "a", time.Minute), start(t, right, "b", time.Minute)
	a.v4, a.v6 = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")
	b.v4, b.v6 = netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::2")
	return a, b
}

// address gives an interface addresses.
func address(space *netns.Space, device string, addresses ...string) {
	for _, a := range addresses {
		if strings.Contains(a, ":") {
			space.Run("ip", "address", "add", a, "dev", device, "nodad")
		} else {
			space.Run("ip", "address", "add", a, "dev", device)
		}
	}
}

// say sends a question with a key, as anybody could who finds the port, and returns the status and
// the answer.
func (h *host) say(t *testing.T, key, call, body string) (status int, answer string) {
	t.Helper()
	if h.anybody == nil {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM([]byte(clientFileOf(t, h.credentials).Certificate))
		h.anybody = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
			DialContext:     dialer(h.Space),
			TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "program.underlay.internal"},
		}}
		t.Cleanup(h.anybody.CloseIdleConnections)
	}
	url := fmt.Sprintf("https://%s/%s", loopback, call)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	response, err := h.anybody.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// eventually waits until something is so, for five seconds at most.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for tick := time.NewTicker(20 * time.Millisecond); !is(); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("after 5 s not yet: %s", what)
		}
	}
}
