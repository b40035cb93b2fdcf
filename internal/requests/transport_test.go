package requests_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/internal/requests"
)

// natGateway forwards connections until it loses their state: then existing ones receive nothing
// and are not reset, and new ones work.
type natGateway struct {
	to string

	mu        sync.Mutex
	forgotten chan struct{}
	dialed    int
}

func (g *natGateway) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, g.to)
	if err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dialed++
	go pass(conn, far, g.forgotten)
	go pass(far, conn, g.forgotten)
	return near, nil
}

func pass(to, from net.Conn, forgotten <-chan struct{}) {
	buffer := make([]byte, 1<<15)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			_ = to.Close()
			return
		}
		select {
		case <-forgotten:
		default:
			_, _ = to.Write(buffer[:n])
		}
	}
}

func (g *natGateway) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.forgotten)
	g.forgotten = make(chan struct{})
}

// A dead connection is replaced: one request may fail, the next ones don't.
func TestADeadConnectionIsReplaced(t *testing.T) {
	api := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Proto)
	}))
	api.EnableHTTP2 = true // as api.hetzner.cloud has
	api.StartTLS()
	t.Cleanup(api.Close)
	g := &natGateway{to: api.Listener.Addr().String(), forgotten: make(chan struct{})}
	transport := requests.NewTransport()
	transport.Proxy = nil
	transport.DialContext = g.dial
	transport.TLSClientConfig = api.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	t.Cleanup(transport.CloseIdleConnections)
	ask := func(patience time.Duration) error {
		client := http.Client{Transport: transport, Timeout: patience}
		resp, err := client.Get(api.URL)
		if err != nil {
			return err
		}
		body, err := io.ReadAll(resp.Body)
		if err == nil && string(body) != "HTTP/2.0" {
			t.Errorf("the connection speaks %s", body)
		}
		return resp.Body.Close()
	}
	if err := ask(5 * time.Second); err != nil {
		t.Fatal(err)
	}
	g.forget()
	began := time.Now()
	_ = ask(15 * time.Second)
	if err := ask(5 * time.Second); err != nil {
		t.Errorf("%s after the connection was lost: %v", time.Since(began), err)
	}
	if took := time.Since(began); g.dialed != 2 || took > 10*time.Second {
		t.Errorf("%d connections in %s", g.dialed, took)
	}
}
