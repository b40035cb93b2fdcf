package robot_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// transport is a function as a transport.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func content(text string) io.ReadCloser { return io.NopCloser(strings.NewReader(text)) }

// way forwards requests to the service, and records them.
type way struct {
	next http.RoundTripper

	mu sync.Mutex // guards the fields below
	// slow is the delay of responses on their way to the client. The service has checked the login
	// before; a client that gives up has no result.
	slow    func() time.Duration
	flights []*flight
}

// flight is one request.
type flight struct {
	method, password string
	began, ended     time.Time // zero: not yet
}

func (f *flight) over(other *flight) bool {
	return !f.ended.IsZero() && !f.ended.After(other.began)
}

func (w *way) RoundTrip(r *http.Request) (*http.Response, error) {
	_, password, _ := r.BasicAuth()
	f := &flight{method: r.Method, password: password, began: time.Now()}
	w.mu.Lock()
	w.flights = append(w.flights, f)
	var back time.Duration
	if w.slow != nil {
		back = w.slow()
	}
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		f.ended = time.Now()
	}()
	if back == 0 {
		return w.next.RoundTrip(r)
	}
	type response struct {
		*http.Response
		error
	}
	succeeded := make(chan response, 1)
	go func() {
		resp, err := w.next.RoundTrip(r.Clone(context.WithoutCancel(r.Context())))
		succeeded <- response{resp, err}
	}()
	select {
	case a := <-succeeded:
		select {
		case <-time.After(back):
			return a.Response, a.error
		case <-r.Context().Done():
		}
	case <-r.Context().Done():
	}
	return nil, r.Context().Err()
}

// slows sets the delay of responses.
func (w *way) slows(back func() time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.slow = back
}

// sent returns the requests with a method, including those in flight.
func (w *way) sent(method string) (found []flight) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.flights {
		if method == "" || f.method == method {
			found = append(found, *f)
		}
	}
	return found
}

// most is the highest number of concurrent requests with a method.
func (w *way) most(method string) (most int) {
	all := w.sent(method)
	for i := range all {
		together := 1
		for j := range i {
			if !all[j].over(&all[i]) {
				together++
			}
		}
		most = max(most, together)
	}
	return most
}
