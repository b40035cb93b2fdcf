// Package faultproxy stands between clients and an API server and does to them
// what networks and load balancers do: it loses the reply to a request that was
// carried out, drops a request before it arrives, and holds watches back.
//
// It terminates TLS with a certificate that the clients trust already and sends
// everything on as it came, so a client has to show who it is by a token, not by
// a certificate. It never changes what is said, and never repeats a request.
package faultproxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"
)

// A Fate is what happens to a request.
type Fate int

const (
	// Pass sends the request on and the reply back.
	Pass Fate = iota
	// LoseReply sends the request on, waits until the server has answered, and
	// breaks the stream instead of passing the answer: the client can't know.
	LoseReply
	// LoseRequest breaks the stream without sending anything on.
	LoseRequest
)

// A Rule decides about a request before it is sent on. It may be called from
// several goroutines at once.
type Rule func(*http.Request) Fate

// Options say what stands behind the proxy.
type Options struct {
	// Upstream is the server's address, an https:// one.
	Upstream string
	// Roots are the authorities that its certificate may come from.
	Roots *x509.CertPool
	// Certificate is shown to clients. It must be valid for 127.0.0.1.
	Certificate tls.Certificate
}

// Proxy is a running proxy. It listens on 127.0.0.1.
type Proxy struct {
	server   *http.Server
	listener net.Listener
	upstream *http.Transport

	mu     sync.Mutex
	rule   Rule
	lost   int           // replies
	stall  chan struct{} // closed when watches go on; nil: they do
	closed chan struct{}
}

// Start starts a proxy that passes everything.
func Start(o Options) (*Proxy, error) {
	target, err := url.Parse(o.Upstream)
	if err != nil {
		return nil, fmt.Errorf("faulting proxy: upstream: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("faulting proxy: %w", err)
	}
	p := &Proxy{
		listener: listener,
		upstream: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: o.Roots}, ForceAttemptHTTP2: true},
		closed:   make(chan struct{}),
	}
	p.server = &http.Server{
		Handler: &httputil.ReverseProxy{
			Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
			Transport:     transport{p},
			FlushInterval: -1, // an event of a watch goes out at once
			ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
			ErrorLog:      log.New(io.Discard, "", 0),
		},
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{o.Certificate}, NextProtos: []string{"h2", "http/1.1"}},
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          log.New(io.Discard, "", 0),
	}
	go func() { _ = p.server.ServeTLS(listener, "", "") }()
	return p, nil
}

// URL is the address for clients.
func (p *Proxy) URL() string { return "https://" + p.listener.Addr().String() }

// Close ends every connection.
func (p *Proxy) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.closed:
		return
	default:
		close(p.closed)
	}
	_ = p.server.Close()
	p.upstream.CloseIdleConnections()
}

// Set replaces the rule; nil passes everything.
func (p *Proxy) Set(rule Rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rule = rule
}

// StallWatches holds back what the server sends to watches, those that begin
// later included. Nothing is lost: ResumeWatches lets it through. A rule may call it.
func (p *Proxy) StallWatches() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stall == nil {
		p.stall = make(chan struct{})
	}
}

// ResumeWatches ends StallWatches.
func (p *Proxy) ResumeWatches() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stall != nil {
		close(p.stall)
		p.stall = nil
	}
}

// Lost is how many replies were lost so far.
func (p *Proxy) Lost() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

func (p *Proxy) fate(r *http.Request) Fate {
	p.mu.Lock()
	rule := p.rule
	p.mu.Unlock()
	if rule == nil {
		return Pass
	}
	return rule(r)
}

// await returns when watches are not stalled, or an error if the reader is gone.
func (p *Proxy) await(ctx context.Context) error {
	p.mu.Lock()
	stall := p.stall
	p.mu.Unlock()
	if stall == nil {
		return nil
	}
	select {
	case <-stall:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.closed:
		return http.ErrServerClosed
	}
}

var (
	errLostRequest = errors.New("request lost on purpose")
	errLostReply   = errors.New("reply lost on purpose")
)

// transport sends requests on according to their fates.
type transport struct{ proxy *Proxy }

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	fate := t.proxy.fate(r)
	if fate == LoseRequest {
		return nil, errLostRequest
	}
	if fate == LoseReply {
		// The client's giving up must not call the request back.
		r = r.WithContext(context.WithoutCancel(r.Context()))
	}
	reply, err := t.proxy.upstream.RoundTrip(r)
	switch {
	case err != nil:
		return nil, err
	case fate == LoseReply:
		// Reading to the end: the server is done with it then.
		_, _ = io.Copy(io.Discard, reply.Body)
		_ = reply.Body.Close()
		t.proxy.mu.Lock()
		t.proxy.lost++
		t.proxy.mu.Unlock()
		return nil, errLostReply
	case r.URL.Query().Get("watch") != "":
		reply.Body = &watch{ReadCloser: reply.Body, ctx: r.Context(), proxy: t.proxy}
	}
	return reply, nil
}

// watch is a body that can be held back.
type watch struct {
	io.ReadCloser
	ctx   context.Context
	proxy *Proxy
}

// Read waits after it has read, not before: what arrives during a stall must not
// slip through because the read had begun earlier.
func (w *watch) Read(b []byte) (int, error) {
	n, err := w.ReadCloser.Read(b)
	if stalled := w.proxy.await(w.ctx); stalled != nil {
		return 0, stalled
	}
	return n, err
}
