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

// answerWithin is how long the API server may take for an answer, all of it. Its own limit
// (--request-timeout) is the same, so later there is none.
const answerWithin = time.Minute

// ErrSilent is what a request gets that the API server doesn't answer in time.
var ErrSilent = fmt.Errorf("the API server has not answered within %s", answerWithin)

// WithDeadline ends requests that the API server doesn't answer, so that nothing waits for ever on a
// server, or a proxy before it, that keeps its connections and says nothing. It wraps the transport
// of a rest.Config. Streams have no deadline.
func WithDeadline(next http.RoundTripper) http.RoundTripper { return deadline{next} }

type deadline struct{ next http.RoundTripper }

func (d deadline) RoundTrip(r *http.Request) (*http.Response, error) {
	if streams(r) {
		return d.next.RoundTrip(r)
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), answerWithin, ErrSilent)
	resp, err := d.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		err = explained(ctx, err)
		cancel()
		return nil, err
	}
	resp.Body = answer{resp.Body, ctx, cancel}
	return resp, nil
}

// WrappedRoundTripper lets client-go find the transport that can close idle connections.
func (d deadline) WrappedRoundTripper() http.RoundTripper { return d.next }

// streams reports whether the answer has no end of its own: a watch, or logs.
func streams(r *http.Request) bool {
	return r.URL.Query().Get("watch") == "true" || path.Base(r.URL.Path) == "log"
}

// answer ends the deadline when it has been read.
type answer struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelFunc
}

func (a answer) Read(to []byte) (int, error) {
	n, err := a.ReadCloser.Read(to)
	if err == nil || errors.Is(err, io.EOF) {
		return n, err
	}
	return n, explained(a.ctx, err)
}

func (a answer) Close() error {
	defer a.cancel()
	return a.ReadCloser.Close()
}

func explained(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), ErrSilent) {
		return ErrSilent
	}
	return err
}
