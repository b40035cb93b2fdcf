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
	r.Header.Set("Authorization", bearer(token))
	resp, err := t.next.RoundTrip(r)
	if resp != nil {
		resp.Request = r // it tells reauthorized which token was refused
	}
	return resp, err
}

func bearer(token string) string { return "Bearer " + token }

// reauthorized sends a request again whose token was refused because it was
// replaced in that moment. Nothing was done for it, whatever it asked.
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
		return resp, nil // refused it is
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
	t.requests.WithLabelValues(t.operation(r), requests.PriorityOf(r.Context()).String(), code).Inc()
	if err == nil && (resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusUnauthorized) &&
		!strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		_ = resp.Body.Close()
		return nil, &notTheAPI{resp.StatusCode}
	}
	return resp, err
}

// operation is what a request asks for, as the API's description writes it:
// IDs stay out of labels, so that there are as many as operations in use.
func (t *counted) operation(r *http.Request) string {
	elements := strings.Split(strings.TrimPrefix(r.URL.Path, t.below), "/")
	for i, element := range elements {
		if _, err := strconv.ParseInt(element, 10, 64); err == nil {
			elements[i] = "{id}"
		}
	}
	return r.Method + " " + strings.Join(elements, "/")
}
