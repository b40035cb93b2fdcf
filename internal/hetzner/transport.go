package hetzner

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"k8s.io/component-base/metrics"
)

// authorized puts the token of the moment on every request.
type authorized struct {
	next  http.RoundTripper
	token func() (string, error)
}

func (t *authorized) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := t.token()
	if err != nil {
		return nil, fmt.Errorf("reading the API token: %w", err)
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return t.next.RoundTrip(r)
}

// notTheAPI is an answer that the API wouldn't give: it speaks JSON.
type notTheAPI struct{ status int }

func (e *notTheAPI) Error() string {
	return fmt.Sprintf("the answer is %d %s and not the API's JSON", e.status, http.StatusText(e.status))
}

// limited gives each request, its answer's body included, so much time.
type limited struct {
	next  http.RoundTripper
	limit time.Duration
}

func (t *limited) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(r.Context(), t.limit)
	resp, err := t.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	resp.Body = &released{resp.Body, cancel}
	return resp, nil
}

// released ends a request's time limit with its body.
type released struct {
	io.ReadCloser
	release context.CancelFunc
}

func (b *released) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}

// counted counts requests. Answers that say the address or the token is wrong,
// but aren't the API's, are errors that say so.
type counted struct {
	next     http.RoundTripper
	below    string // the endpoint's path
	requests *metrics.CounterVec
}

func (t *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	code := "unanswered"
	if err == nil {
		code = strconv.Itoa(resp.StatusCode)
	}
	t.requests.WithLabelValues(r.Method, t.resource(r.URL.Path), priorityOf(r.Context()).String(), code).Inc()
	if err == nil && (resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusUnauthorized) &&
		!strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		_ = resp.Body.Close()
		return nil, &notTheAPI{resp.StatusCode}
	}
	return resp, err
}

// resource is the kind of thing that a path is about: the first element below
// the endpoint. IDs stay out of labels, and there are as many kinds as the API has.
func (t *counted) resource(path string) string {
	kind, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(path, t.below), "/"), "/")
	return kind
}
