package robotsim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// Transport answers requests in process, whatever their host. A dropped
// connection is an error that wraps [io.ErrUnexpectedEOF], as over a socket.
func (s *Simulator) Transport() http.RoundTripper { return transport{s} }

type transport struct{ sim *Simulator }

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r = r.Clone(r.Context())
		r.Body = http.NoBody
	}
	defer r.Body.Close()
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	inner := r
	if r.URL.Path == "" { // a client sends GET / for an address without a path
		inner = r.Clone(r.Context())
		inner.URL.Path = "/"
	}
	a, err := t.sim.exchange(inner)
	if errors.Is(err, errDropped) {
		return nil, fmt.Errorf("%w: %w", err, io.ErrUnexpectedEOF)
	}
	if err != nil {
		return nil, err
	}
	return &http.Response{
		Status:        fmt.Sprintf("%d %s", a.status, http.StatusText(a.status)),
		StatusCode:    a.status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        a.header,
		Body:          io.NopCloser(bytes.NewReader(a.body.Bytes())),
		ContentLength: int64(a.body.Len()),
		Request:       r,
	}, nil
}
