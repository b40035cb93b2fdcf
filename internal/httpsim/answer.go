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

// errDropped is the error for a connection that is closed without a response.
var errDropped = errors.New("connection closed without a response")

// Answer is a buffered response. It is the ResponseWriter passed to operations, so that the whole
// response exists before its first byte is sent.
type Answer struct {
	Status int
	Body   bytes.Buffer
	// Code is the error code for the request log; empty on success.
	Code string
	// Fault is the fault injected into the request.
	Fault Fault
	// Dropped closes the connection without a response.
	Dropped bool

	header http.Header
	entry  Request
}

// Header implements [http.ResponseWriter].
func (a *Answer) Header() http.Header {
	if a.header == nil {
		a.header = http.Header{}
	}
	return a.header
}

// WriteHeader implements [http.ResponseWriter].
func (a *Answer) WriteHeader(status int) { a.Status = status }

func (a *Answer) Write(b []byte) (int, error) { return a.Body.Write(b) }

// Send writes a value as JSON, or no body if it is nil.
func (a *Answer) Send(status int, body any) {
	a.Status = status
	a.Body.Reset()
	if body == nil {
		return
	}
	a.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(&a.Body).Encode(body); err != nil {
		// Bodies are structs of the simulators, which can always be encoded.
		panic(fmt.Sprintf("httpsim: encoding a response: %v", err))
	}
}

// Page writes an HTML page, as a web server in front of the service does.
func (a *Answer) Page(status int) {
	a.Status, a.Code = status, ""
	a.Body.Reset()
	a.Header().Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprintf(&a.Body, "<html><head><title>%[1]d %[2]s</title></head>"+
		"<body><h1>%[1]d %[2]s</h1></body></html>\n", status, http.StatusText(status))
}

func (a *Answer) write(w http.ResponseWriter, r *http.Request) {
	for key, values := range a.Header() {
		w.Header()[key] = values
	}
	body := a.body(r)
	if a.Fault.TornBody && len(body) > 0 {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		body = body[:len(body)/2]
	}
	w.WriteHeader(a.Status)
	_, _ = w.Write(body) // the client may have disconnected
	if a.Fault.TornBody {
		_ = http.NewResponseController(w).Flush() // deliver the first half
		panic(http.ErrAbortHandler)
	}
}

func (a *Answer) body(r *http.Request) []byte {
	if r.Method == http.MethodHead {
		return nil
	}
	return a.Body.Bytes()
}

// transport serves requests in process.
type transport func(*http.Request) (*Answer, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	inner := r
	if r.Body == nil || r.URL.Path == "" {
		inner = r.Clone(r.Context())
		inner.URL.Path = cmp.Or(r.URL.Path, "/") // as a client sends a URL without a path
		if r.Body == nil {
			inner.Body = http.NoBody
		}
	}
	defer inner.Body.Close()
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	a, err := t(inner)
	if errors.Is(err, errDropped) {
		return nil, fmt.Errorf("%w: %w", err, io.ErrUnexpectedEOF)
	}
	if err != nil {
		return nil, err
	}
	body := a.body(r)
	var content io.Reader = bytes.NewReader(body)
	if a.Fault.TornBody {
		content = io.MultiReader(bytes.NewReader(body[:len(body)/2]), torn{})
	}
	return &http.Response{
		Status:     fmt.Sprintf("%d %s", a.Status, http.StatusText(a.Status)),
		StatusCode: a.Status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: a.Header(),
		Body: io.NopCloser(content), ContentLength: int64(len(body)), Request: r,
	}, nil
}

// torn is the end of a truncated body.
type torn struct{}

func (torn) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
