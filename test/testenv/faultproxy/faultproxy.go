// Package faultproxy is a proxy between clients and an API server that injects the faults of
// networks and load balancers: it loses the reply to a request that was executed, drops a request
// before it arrives, and delays watches.
//
// It terminates TLS with a certificate that the clients trust already and forwards requests
// unchanged, so a client has to authenticate by a token, not by a certificate. It never changes
// data, and never repeats a request.
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
	// Pass forwards the request and the reply.
	Pass Fate = iota
	// LoseReply forwards the request, waits for the server's reply, and breaks the stream instead
	// of forwarding it: the client can't determine whether the request was executed.
	LoseReply
	// LoseRequest breaks the stream without forwarding the request.
	LoseRequest
)

// A Rule decides on a request before it is forwarded. It may be called from several goroutines at
// once.
type Rule func(*http.Request) Fate

// Options configure a Proxy.
type Options struct {
	// Upstream is the server's address, an https:// one.
	Upstream string
	// Roots are the authorities for the server's certificate.
	Roots *x509.CertPool
	// Certificate is the proxy's own. It must be valid for 127.0.0.1.
	Certificate tls.Certificate
}

// Proxy is a running proxy. It listens on 127.0.0.1.
type Proxy struct {
	server   *http.Server
	listener net.Listener
	upstream *http.Transport

	mu     sync.Mutex
	rule   Rule
	lost   int           // lost replies
	stall  chan struct{} // closed when watches resume; nil: not stalled
	closed chan struct{}
}

// Start starts a proxy that forwards everything.
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
		upstream: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: o.Roots}, ForceAttemptHTTP2: true,
		},
		closed: make(chan struct{}),
	}
	p.server = &http.Server{
		Handler: &httputil.ReverseProxy{
			Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
			Transport:     transport{p},
			FlushInterval: -1, // forward each event of a watch at once
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

// Set replaces the rule; nil forwards everything.
func (p *Proxy) Set(rule Rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rule = rule
}

// StallWatches delays the data of watches, including those that begin later, until ResumeWatches.
// No data is lost. A rule may call it.
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

// Lost counts the replies lost so far.
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

// await returns when watches are not stalled, or an error if the reader's context has ended.
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

// transport forwards requests according to their fates.
type transport struct{ proxy *Proxy }

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	fate := t.proxy.fate(r)
	if fate == LoseRequest {
		return nil, errLostRequest
	}
	if fate == LoseReply {
		// A client that gives up must not cancel the forwarded request.
		r = r.WithContext(context.WithoutCancel(r.Context()))
	}
	reply, err := t.proxy.upstream.RoundTrip(r)
	switch {
	case err != nil:
		return nil, err
	case fate == LoseReply:
		// Reading to the end: the server has finished the request then.
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

// watch is a body that can be stalled.
type watch struct {
	io.ReadCloser
	ctx   context.Context
	proxy *Proxy
}

// Read waits after it has read, not before: data that arrives during a stall must not pass because
// the read had begun earlier.
func (w *watch) Read(b []byte) (int, error) {
	n, err := w.ReadCloser.Read(b)
	if stalled := w.proxy.await(w.ctx); stalled != nil {
		return 0, stalled
	}
	return n, err
}
