package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"time"
)

// replyTimeout limits the time of a complete response of the API server. The server's own limit
// (--request-timeout) is the same, so no response arrives later.
const replyTimeout = time.Minute

// ErrSilent is the error of a request that exceeded this limit.
var ErrSilent = fmt.Errorf("the API server has not answered within %s", replyTimeout)

// WithDeadline limits the time of requests, so that no caller blocks forever on an API server or
// a proxy that keeps the connection without responding. It wraps the transport of a rest.Config.
// Streams have no deadline.
func WithDeadline(next http.RoundTripper) http.RoundTripper { return deadline{next} }

type deadline struct{ next http.RoundTripper }

func (d deadline) RoundTrip(r *http.Request) (*http.Response, error) {
	if streams(r) {
		return d.next.RoundTrip(r)
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), replyTimeout, ErrSilent)
	resp, err := d.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		err = explained(ctx, err)
		cancel()
		return nil, err
	}
	resp.Body = response{resp.Body, ctx, cancel}
	return resp, nil
}

// WrappedRoundTripper lets client-go find the transport that can close idle connections.
func (d deadline) WrappedRoundTripper() http.RoundTripper { return d.next }

// streams reports whether the response has no end of its own: a watch, or logs.
func streams(r *http.Request) bool {
	return r.URL.Query().Get("watch") == "true" || path.Base(r.URL.Path) == "log"
}

// response cancels the deadline when it is closed.
type response struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelFunc
}

func (a response) Read(to []byte) (int, error) {
	n, err := a.ReadCloser.Read(to)
	if err == nil || errors.Is(err, io.EOF) {
		return n, err
	}
	return n, explained(a.ctx, err)
}

func (a response) Close() error {
	defer a.cancel()
	return a.ReadCloser.Close()
}

func explained(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), ErrSilent) {
		return ErrSilent
	}
	return err
}
