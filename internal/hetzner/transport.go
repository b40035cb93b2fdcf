package hetzner

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

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

// counted counts requests, and keeps what the API says of the budget.
type counted struct {
	next      http.RoundTripper
	requests  *metrics.CounterVec
	remaining *metrics.Gauge
}

func (t *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	code := "unanswered"
	if err == nil {
		code = strconv.Itoa(resp.StatusCode)
		if left, err := strconv.Atoi(resp.Header.Get("RateLimit-Remaining")); err == nil {
			t.remaining.Set(float64(left))
		}
	}
	t.requests.WithLabelValues(r.Method, resource(r.URL.Path), code).Inc()
	return resp, err
}

// resource is the kind of thing that a path is about: the first element behind
// the version. IDs stay out of labels, and there are as many kinds as the API has.
func resource(path string) string {
	_, rest, versioned := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if !versioned {
		return "unknown"
	}
	kind, _, _ := strings.Cut(rest, "/")
	return kind
}
