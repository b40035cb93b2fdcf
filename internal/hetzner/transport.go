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

	"github.com/underlay-ccm/underlay/internal/requests"
)

// authorized adds the current token to each request.
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
	r.Header.Set("Authorization", bearer(token))
	resp, err := t.next.RoundTrip(r)
	if resp != nil {
		resp.Request = r // reauthorized reads the refused token from it
	}
	return resp, err
}

func bearer(token string) string { return "Bearer " + token }

// reauthorized sends a request again if its token was refused and has been replaced since. The
// API did nothing for the refused request, so writes are repeated too.
type reauthorized struct {
	next  http.RoundTripper
	token func() (string, error)
}

func (t *reauthorized) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusUnauthorized {
		return resp, err
	}
	token, err := t.token()
	if err != nil || resp.Request == nil || resp.Request.Header.Get("Authorization") == bearer(token) {
		return resp, nil // the current token was refused
	}
	again := r.Clone(r.Context())
	if r.Body != nil && r.Body != http.NoBody {
		if r.GetBody == nil {
			return resp, nil
		}
		if again.Body, err = r.GetBody(); err != nil {
			return resp, nil
		}
	}
	_ = resp.Body.Close()
	return t.next.RoundTrip(again)
}

// notTheAPI is a response that is not from the API, which replies with JSON.
type notTheAPI struct{ status int }

func (e *notTheAPI) Error() string {
	return fmt.Sprintf("the response is %d %s and not the API's JSON", e.status, http.StatusText(e.status))
}

// limited bounds the time of each request, including the response's body.
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

type released struct {
	io.ReadCloser
	release context.CancelFunc
}

func (b *released) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}

// counted counts requests, and turns 401 and 404 responses that are not the API's into notTheAPI.
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
	t.requests.WithLabelValues(t.operation(r), requests.PriorityOf(r.Context()).String(), code).Inc()
	if err == nil && (resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusUnauthorized) &&
		!strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		_ = resp.Body.Close()
		return nil, &notTheAPI{resp.StatusCode}
	}
	return resp, err
}

// operation returns the request's operation as the API's description names it, without IDs,
// which would be unbounded label values.
func (t *counted) operation(r *http.Request) string {
	elements := strings.Split(strings.TrimPrefix(r.URL.Path, t.below), "/")
	for i, element := range elements {
		if _, err := strconv.ParseInt(element, 10, 64); err == nil {
			elements[i] = "{id}"
		}
	}
	return r.Method + " " + strings.Join(elements, "/")
}
