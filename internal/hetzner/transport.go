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

// authorized adds the current token to each request, and bounds its time, including the response's
// body.
type authorized struct {
	next  http.RoundTripper
	token func() (string, error)
	limit time.Duration
}

func (t *authorized) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := t.token()
	if err != nil {
		return nil, fmt.Errorf("reading the API token: %w", err)
	}
	ctx, cancel := context.WithTimeout(r.Context(), t.limit)
	r = r.Clone(ctx)
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := t.next.RoundTrip(r)
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

// notTheAPI is a response that is not from the API, which replies with JSON.
type notTheAPI struct{ status int }

func (e *notTheAPI) Error() string {
	return fmt.Sprintf("the response is %d %s and not the API's JSON", e.status,
		http.StatusText(e.status))
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
	if err == nil &&
		(resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusUnauthorized) &&
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
