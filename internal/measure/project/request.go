package project

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// request is one that was understood.
type request struct {
	method, below string // the path below the endpoint's, which begins with a slash
	kind          kind   // empty: none of those that are made
	id            int64  // 0: none
	nested        bool   // there is more behind the ID
	op            *operation
	body          map[string]any
}

// reads reports whether a request changes nothing.
func (r request) reads() bool { return r.method == http.MethodGet || r.method == http.MethodHead }

// makes reports whether a request makes something.
func (r request) makes() bool { return r.op != nil && r.op.makes }

// understand finds out what a request asks for. What isn't written as the API's description has
// it is refused, as is any change that isn't among the operations.
func (g *guard) understand(r *http.Request) (request, error) {
	body, err := readBody(r.Body)
	if err != nil {
		return request{}, err
	}
	below, isBelow := g.below(r.URL)
	if !isBelow {
		return request{}, fmt.Errorf("it isn't to %s", g.base)
	}
	segments := strings.Split(below, "/")
	for _, s := range segments {
		if strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" || s == "" {
			return request{}, errors.New("its path is none of the API's")
		}
	}
	asked := request{method: r.Method, below: "/" + below, body: body}
	if asked.method == "" {
		asked.method = http.MethodGet
	}
	if k, is := collection(segments[0]); is {
		asked.kind = k
		if len(segments) > 1 {
			asked.id, _ = canonicalID(segments[1])
		}
		asked.nested = len(segments) > 2
	}
	if asked.reads() {
		if body != nil {
			return request{}, errors.New("a request that reads has no body")
		}
		return asked, nil
	}
	if r.URL.RawQuery != "" {
		return request{}, errors.New("a request that changes something has no query")
	}
	asked.op = find(asked, segments)
	if asked.op == nil {
		return request{}, errors.New("it is no operation that a run may ask for")
	}
	return asked, nil
}

// below is the path below the endpoint's, without a slash before it.
func (g *guard) below(u *url.URL) (path string, is bool) {
	path, is = strings.CutPrefix(u.Path, g.base.Path+"/")
	plain := u.Opaque == "" && u.RawPath == "" && u.User == nil
	return path, is && plain && u.Scheme == g.base.Scheme && u.Host == g.base.Host
}

// find is the operation that a request names; nil: none that may be sent.
func find(asked request, segments []string) *operation {
	for _, op := range operations(asked.kind) {
		var fits bool
		switch {
		case op.makes:
			fits = len(segments) == 1
		case op.action == "":
			fits = len(segments) == 2 && asked.id != 0
		default:
			fits = len(segments) == 4 && asked.id != 0 && segments[2] == "actions" &&
				segments[3] == op.action
		}
		if fits && op.method == asked.method {
			return &op
		}
	}
	return nil
}
