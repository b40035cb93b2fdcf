package hcloudsim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// Transport answers requests in process: whatever their host, those for /v1
// reach the simulator. A dropped connection is an error that wraps
// [io.ErrUnexpectedEOF], as over a socket.
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
	a, err := t.sim.exchange(r)
	if errors.Is(err, errDropped) {
		return nil, fmt.Errorf("%w: %w", err, io.ErrUnexpectedEOF)
	}
	if err != nil {
		return nil, err
	}
	body := a.body.Bytes()
	if r.Method == http.MethodHead {
		body = nil
	}
	var content io.Reader = bytes.NewReader(body)
	if a.fault.TornBody {
		content = io.MultiReader(bytes.NewReader(body[:len(body)/2]), torn{})
	}
	return &http.Response{
		Status:        fmt.Sprintf("%d %s", a.status, http.StatusText(a.status)),
		StatusCode:    a.status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        a.header,
		Body:          io.NopCloser(content),
		ContentLength: int64(len(body)),
		Request:       r,
	}, nil
}

// torn is where a body ends that should have gone on.
type torn struct{}

func (torn) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
