package inside_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/internal/measure/inside"
)

// certificateOf is what the program serves with, out of its user data.
func certificateOf(t *testing.T, c inside.Credentials) tls.Certificate {
	t.Helper()
	_, rest, _ := strings.Cut(inside.UserData(c, time.Minute), "\nSETTINGS = ")
	line, _, _ := strings.Cut(rest, "\n")
	var settings struct{ Certificate, Private string }
	must(t, json.Unmarshal([]byte(line), &settings))
	certificate, err := tls.X509KeyPair([]byte(settings.Certificate), []byte(settings.Private))
	must(t, err)
	return certificate
}

// serve is a program in this process, with the certificate of those credentials.
func serve(t *testing.T, c inside.Credentials, handle http.HandlerFunc) netip.AddrPort {
	t.Helper()
	s := httptest.NewUnstartedServer(handle)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{certificateOf(t, c)}}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return netip.MustParseAddrPort(s.Listener.Addr().String())
}

func client(t *testing.T, c inside.Credentials, at netip.AddrPort, dial inside.Dialer) *inside.Client {
	t.Helper()
	client := inside.New(c, at, dial)
	t.Cleanup(client.Close)
	return client
}

// must ends a test with an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// breakOff ends the connection of a request.
func breakOff(w http.ResponseWriter) {
	if c, _, err := w.(http.Hijacker).Hijack(); err == nil {
		_ = c.Close()
	}
}

func TestErrorsNameTheServerAndNothingSecret(t *testing.T) {
	c := newCredentials(t, "a1")
	key := clientFileOf(t, c).Key
	var at netip.AddrPort
	answers := map[string]http.HandlerFunc{
		"breaks off": func(w http.ResponseWriter, _ *http.Request) { breakOff(w) },
		"tells all": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusConflict)
			_, _ = fmt.Fprintf(w, `{"error":"at %s with %s"}`, at, r.Header.Get("Authorization"))
		},
		"no JSON": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, key, http.StatusTeapot) },
		"another one": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://"+at.String(), http.StatusFound)
		},
		"nonsense": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"name":"`+key+`"}`) },
		"too short": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, "[")
		},
	}
	clients := map[string]*inside.Client{}
	for name, answer := range answers {
		at = serve(t, c, answer)
		clients[name] = client(t, c, at, nil)
	}
	closed, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	must(t, closed.Close())
	at = netip.MustParseAddrPort(closed.Addr().String())
	clients["nobody"] = client(t, c, at, nil)
	clients["another certificate"] = client(t, newCredentials(t, "a1"), serve(t, c, http.NotFound), nil)
	clients["a dialer that tells"] = client(t, c, netip.MustParseAddrPort("[2001:db8::7]:8443"),
		func(_ context.Context, _, address string) (net.Conn, error) {
			return nil, fmt.Errorf("no way to %s, host 2001:db8::7", address)
		})
	if _, err := clients["nobody"].Clock(t.Context()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%v, want one that is %v", err, syscall.ECONNREFUSED)
	}
	for name, client := range clients {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they wait before they try again
			_, err := client.Interfaces(t.Context())
			if err == nil {
				t.Fatal("no error")
			}
			if !strings.HasPrefix(err.Error(), "server a1: interfaces: ") {
				t.Error(err)
			}
			for _, secret := range []string{key, "127.0.0.1", at.String(), "2001:db8::7"} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("%v holds %s", err, secret)
				}
			}
		})
	}
}

func TestCallsAreRepeatedWhoseConnectionFails(t *testing.T) {
	c := newCredentials(t, "a1")
	var asked atomic.Int32
	ids := make(chan string, 10)
	at := serve(t, c, func(w http.ResponseWriter, r *http.Request) {
		var question struct{ ID string }
		_ = json.NewDecoder(r.Body).Decode(&question)
		ids <- question.ID
		if asked.Add(1) == 1 {
			breakOff(w)
			return
		}
		_, _ = io.WriteString(w, "null")
	})
	must(t, client(t, c, at, nil).Start(t.Context(), inside.Stream{}))
	if first, second := <-ids, <-ids; first != second || first == "" {
		t.Errorf("asked as %q and as %q: the packets would be sent twice", first, second)
	}
}

func TestRefusalsArentRepeated(t *testing.T) {
	c := newCredentials(t, "a1")
	var asked atomic.Int32
	at := serve(t, c, func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"error":"it is no port"}`)
	})
	err := client(t, c, at, nil).Receive(t.Context(), 1)
	if err == nil || err.Error() != "server a1: receive: it is no port" || asked.Load() != 1 {
		t.Errorf("error %v, asked %d times", err, asked.Load())
	}
}

func TestReadyWaits(t *testing.T) {
	c := newCredentials(t, "a1")
	at := serve(t, c, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{}`) })
	var dialed atomic.Int32
	late := func(ctx context.Context, network, address string) (net.Conn, error) {
		if dialed.Add(1) < 4 {
			return nil, syscall.ECONNREFUSED
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	must(t, client(t, c, at, late).Ready(t.Context()))

	never := func(context.Context, string, string) (net.Conn, error) { return nil, syscall.ECONNREFUSED }
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err := client(t, c, at, never).Ready(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "refused") {
		t.Errorf("error %v, want the end of ctx and why it was waited", err)
	}
}

func TestTheEndOfTheContextIsSeen(t *testing.T) {
	c := newCredentials(t, "a1")
	at := serve(t, c, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	stop := time.AfterFunc(50*time.Millisecond, cancel)
	defer stop.Stop()
	if _, err := client(t, c, at, nil).Packets(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
}

// Something else that answers, such as a proxy on the way, is neither waited for nor asked again, and
// the names in its certificate aren't told.
func TestSomethingElseIsNotWaitedFor(t *testing.T) {
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	other := client(t, newCredentials(t, "a1"), netip.MustParseAddrPort(s.Listener.Addr().String()), nil)
	_, asked := other.Clock(t.Context())
	for _, err := range []error{other.Ready(t.Context()), asked} {
		if !errors.Is(err, inside.ErrForeign) || strings.Contains(err.Error(), "example.com") {
			t.Errorf("error %v, want %v", err, inside.ErrForeign)
		}
	}
}
