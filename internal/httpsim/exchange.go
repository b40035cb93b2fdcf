package httpsim

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
)

// MaxBody is more bytes than any request of the simulated services needs.
const MaxBody = 1 << 20

// ErrDropped stands for a connection that ended without an answer.
var ErrDropped = errors.New("connection closed without an answer")

// Answer is a response in the making. It is the ResponseWriter that operations see, so that a
// whole response exists before any byte of it leaves.
type Answer struct {
	Status int
	Body   bytes.Buffer
	// Code is that of the error, for the log of requests; empty: none.
	Code string
	// Torn lets the body end halfway, after the headers of a whole one.
	Torn bool

	header http.Header
}

// Header implements http.ResponseWriter.
func (a *Answer) Header() http.Header {
	if a.header == nil {
		a.header = http.Header{}
	}
	return a.header
}

// WriteHeader implements http.ResponseWriter.
func (a *Answer) WriteHeader(status int) { a.Status = status }

// Write implements http.ResponseWriter.
func (a *Answer) Write(b []byte) (int, error) { return a.Body.Write(b) }

// Send answers with a value as JSON, or without a body where it is nil.
func (a *Answer) Send(status int, body any) {
	a.Status = status
	a.Body.Reset()
	if body == nil {
		return
	}
	a.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(&a.Body).Encode(body); err != nil {
		panic(fmt.Sprintf("httpsim: encoding a response: %v", err)) // structs of the simulators
	}
}

// Page answers with HTML, as a web server does that stands before the service.
func (a *Answer) Page(status int) {
	a.Status, a.Code = status, ""
	a.Body.Reset()
	a.Header().Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprintf(&a.Body, "<html><head><title>%[1]d %[2]s</title></head><body><h1>%[1]d %[2]s</h1></body></html>\n",
		status, http.StatusText(status))
}

// Exchange takes one request to its answer. An error means that the client gets none: ErrDropped,
// or that the client has given up.
type Exchange func(*http.Request) (*Answer, error)

// ServeHTTP answers over a socket.
func (e Exchange) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a, err := e(r)
	if err != nil {
		panic(http.ErrAbortHandler) // net/http's word for closing the connection
	}
	for key, values := range a.Header() {
		w.Header()[key] = values
	}
	body := a.body(r)
	if a.Torn && len(body) > 0 {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		body = body[:len(body)/2]
	}
	w.WriteHeader(a.Status)
	_, _ = w.Write(body) // the client may be gone; nobody else cares
	if a.Torn {
		_ = http.NewResponseController(w).Flush() // half of it has to arrive
		panic(http.ErrAbortHandler)
	}
}

// RoundTrip answers in process. A dropped connection is an error that wraps io.ErrUnexpectedEOF,
// as over a socket.
func (e Exchange) RoundTrip(r *http.Request) (*http.Response, error) {
	inner := r
	if r.Body == nil || r.URL.Path == "" {
		inner = r.Clone(r.Context())
		inner.URL.Path = cmp.Or(r.URL.Path, "/") // as a client sends an address without a path
		if r.Body == nil {
			inner.Body = http.NoBody
		}
	}
	defer inner.Body.Close()
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	a, err := e(inner)
	if errors.Is(err, ErrDropped) {
		return nil, fmt.Errorf("%w: %w", err, io.ErrUnexpectedEOF)
	}
	if err != nil {
		return nil, err
	}
	body := a.body(r)
	var content io.Reader = bytes.NewReader(body)
	if a.Torn {
		content = io.MultiReader(bytes.NewReader(body[:len(body)/2]), torn{})
	}
	return &http.Response{
		Status: fmt.Sprintf("%d %s", a.Status, http.StatusText(a.Status)), StatusCode: a.Status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.Header(), Body: io.NopCloser(content), ContentLength: int64(len(body)), Request: r,
	}, nil
}

func (a *Answer) body(r *http.Request) []byte {
	if r.Method == http.MethodHead {
		return nil
	}
	return a.Body.Bytes()
}

// torn is where a body ends that should have gone on.
type torn struct{}

func (torn) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
