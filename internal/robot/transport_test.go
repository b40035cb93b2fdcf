package robot_test

import (
	"io"
	"net/http"
	"strings"
)

// transport is a function as a way to the service.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func content(text string) io.ReadCloser { return io.NopCloser(strings.NewReader(text)) }
