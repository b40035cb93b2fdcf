package httpsim

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Faults wait for their requests, in the order in which they came.
type Faults[F any] struct{ waiting []*waitingFault[F] }

type waitingFault[F any] struct {
	fault F
	left  int
	match func(*http.Request) bool
}

// Add lets a fault wait for a number of requests that match: 0 is one, negative is all.
func (f *Faults[F]) Add(fault F, times int, match func(*http.Request) bool) {
	f.waiting = append(f.waiting, &waitingFault[F]{fault, cmp.Or(times, 1), match})
}

// Take returns the fault that a request meets; the zero value: none.
func (f *Faults[F]) Take(r *http.Request) F {
	for i, w := range f.waiting {
		if !w.match(r) {
			continue
		}
		if w.left--; w.left == 0 {
			f.waiting = slices.Delete(f.waiting, i, i+1)
		}
		return w.fault
	}
	var none F
	return none
}

// MatchRequests returns what reports whether a request matches a pattern of
// [http.ServeMux] whose path is below another, such as "POST /servers" below
// /v1. A ServeMux of one pattern judges, so that patterns mean here what they
// mean everywhere in Go; the empty pattern matches all.
func MatchRequests(below, pattern string) (match func(*http.Request) bool, err error) {
	if pattern == "" {
		return func(*http.Request) bool { return true }, nil
	}
	no := func(reason any) error {
		return fmt.Errorf("fault: Match %q is no pattern of net/http.ServeMux, such as \"POST /servers\": %v", pattern, reason)
	}
	defer func() {
		if reason := recover(); reason != nil { // ServeMux's way to say no
			err = no(reason)
		}
	}()
	method, path, found := strings.Cut(pattern, " ")
	if !found {
		method, path = "", pattern
	}
	if !strings.HasPrefix(path, "/") {
		return nil, no("the path must start with /")
	}
	mux := http.NewServeMux()
	mux.Handle(strings.TrimSpace(method+" "+below+path), http.NotFoundHandler())
	return func(r *http.Request) bool {
		_, matched := mux.Handler(r)
		return matched != ""
	}, nil
}
