package httpsim

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Faults holds pending faults in the order of injection.
type Faults[F any] struct{ waiting []*waitingFault[F] }

type waitingFault[F any] struct {
	fault F
	left  int
	match func(*http.Request) bool
}

// Add adds a fault for a number of matching requests: 0 means 1, negative means all.
func (f *Faults[F]) Add(fault F, times int, match func(*http.Request) bool) {
	f.waiting = append(f.waiting, &waitingFault[F]{fault, cmp.Or(times, 1), match})
}

// Take returns the fault for a request, or the zero value.
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

// MatchRequests returns a function that reports whether a request matches a pattern of
// [http.ServeMux], such as "POST /servers", with the path relative to below, such as /v1. It uses
// a ServeMux with this one pattern, so that patterns have exactly Go's semantics. The empty
// pattern matches all requests.
func MatchRequests(below, pattern string) (match func(*http.Request) bool, err error) {
	if pattern == "" {
		return func(*http.Request) bool { return true }, nil
	}
	no := func(reason any) error {
		return fmt.Errorf("fault: Match %q is no pattern of net/http.ServeMux, such as \"POST /servers\": %v", pattern, reason)
	}
	defer func() {
		if reason := recover(); reason != nil { // ServeMux panics on an invalid pattern
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
