package faultproxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/test/testenv/faultproxy"
)

// backend is a server that counts requests; its watch sends one line for each poke.
type backend struct {
	*httptest.Server
	carriedOut atomic.Int64
	pokes      chan string
}

func startBackend(t *testing.T) *backend {
	t.Helper()
	b := &backend{pokes: make(chan string)}
	b.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(
		w http.ResponseWriter, r *http.Request,
	) {
		if r.URL.Query().Get("watch") == "" {
			fmt.Fprintf(w, "%s %s %d", r.Method, r.Header.Get("Authorization"), b.carriedOut.Add(1))
			return
		}
		_ = http.NewResponseController(w).Flush()
		for {
			select {
			case <-r.Context().Done():
				return
			case line := <-b.pokes:
				fmt.Fprintln(w, line)
				_ = http.NewResponseController(w).Flush()
			}
		}
	}))
	b.EnableHTTP2 = true
	b.StartTLS()
	t.Cleanup(b.Close)
	return b
}

// between starts a proxy in front of a server, and returns a client for it.
func between(t *testing.T, b *backend) (*faultproxy.Proxy, *http.Client) {
	t.Helper()
	client := b.Client()
	proxy, err := faultproxy.Start(faultproxy.Options{
		Upstream: b.URL, Certificate: b.TLS.Certificates[0],
		Roots: client.Transport.(*http.Transport).TLSClientConfig.RootCAs,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	return proxy, client
}

func send(t *testing.T, client *http.Client, method, url string) (*http.Response, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer me")
	return client.Do(request)
}

func TestFates(t *testing.T) {
	b := startBackend(t)
	proxy, client := between(t, b)
	for _, c := range []struct {
		name       string
		fate       faultproxy.Fate
		answered   bool
		carriedOut int64
	}{
		{"passed", faultproxy.Pass, true, 1},
		{"the reply is lost", faultproxy.LoseReply, false, 2},
		{"the request is lost", faultproxy.LoseRequest, false, 2},
		{"passed again", faultproxy.Pass, true, 3},
	} {
		proxy.Set(func(r *http.Request) faultproxy.Fate {
			if r.Method != http.MethodPatch {
				return faultproxy.Pass
			}
			return c.fate
		})
		answer, err := send(t, client, http.MethodPatch, proxy.URL())
		if (err == nil) != c.answered {
			t.Errorf("%s: error %v, want an answer: %t", c.name, err, c.answered)
		}
		if err == nil {
			body, err := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			if want := fmt.Sprint("PATCH Bearer me ", c.carriedOut); err != nil || string(body) != want {
				t.Errorf("%s: answer %q, %v, want %q", c.name, body, err, want)
			}
		}
		if got := b.carriedOut.Load(); got != c.carriedOut {
			t.Errorf("%s: the server carried out %d requests, want %d", c.name, got, c.carriedOut)
		}
	}
	if proxy.Lost() != 1 {
		t.Errorf("%d replies lost, want 1", proxy.Lost())
	}
}

func TestWatchesAreHeldBack(t *testing.T) {
	b := startBackend(t)
	proxy, client := between(t, b)
	watch, err := send(t, client, http.MethodGet, proxy.URL()+"?watch=true")
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Body.Close()
	lines := make(chan string)
	go func() {
		defer close(lines)
		for scan := bufio.NewScanner(watch.Body); scan.Scan(); {
			lines <- scan.Text()
		}
	}()
	expect := func(want string) {
		t.Helper()
		if got := <-lines; got != want {
			t.Fatalf("the watch told %q, want %q", got, want)
		}
	}
	b.pokes <- "before"
	expect("before")

	proxy.StallWatches()
	b.pokes <- "meanwhile"
	if answer, err := send(t, client, http.MethodGet, proxy.URL()); err != nil {
		t.Errorf("another request during the stall: %v", err)
	} else {
		_ = answer.Body.Close()
	}
	select {
	case line := <-lines:
		t.Fatalf("%q came through the stall", line)
	case <-time.After(100 * time.Millisecond): // how long nothing may arrive
	}
	proxy.ResumeWatches()
	expect("meanwhile")
}
