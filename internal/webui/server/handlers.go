package server

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"strings"

	"github.com/underlay-ccm/underlay/internal/survey"
)

//go:embed page
var embedded embed.FS

// hits limits the search results.
const hits = 12

// policy is the Content-Security-Policy: the page loads its own files from this server only.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// Handler returns the handler of the page. Responses other than the page's files are JSON.
func (s *Server) Handler() http.Handler {
	files, err := fs.Sub(embedded, "page")
	if err != nil {
		panic(err) // embedded at build time
	}
	mux := http.NewServeMux()
	base := "/" + s.key + "/"
	mux.Handle("GET "+base, http.StripPrefix(base, http.FileServerFS(files)))
	mux.HandleFunc("GET "+base+"view", s.look)
	mux.HandleFunc("GET "+base+"find", s.find)
	mux.HandleFunc("GET "+base+"inspect", s.inspect)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "Nothing is here: open the URL that underlayctl ui printed.", http.StatusNotFound)
	})
	return guarded(mux)
}

// guarded rejects requests that are not from the user's own browser, and sets headers that
// isolate the page.
func guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("Cache-Control", "no-store")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		switch {
		case !loopback(r.Host):
			text := fmt.Sprintf("Host %q is not this machine: open the URL that underlayctl ui printed.",
				r.Host)
			http.Error(w, text, http.StatusMisdirectedRequest)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "This page is for looking only.", http.StatusMethodNotAllowed)
		case foreign(r):
			http.Error(w, "Another site may not request this.", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// loopback reports whether a Host header names the loopback interface, with any port, because
// ssh -L may change it.
func loopback(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	switch strings.ToLower(name) {
	case "127.0.0.1", "localhost", "::1", "[::1]":
		return true
	}
	return false
}

// foreign reports whether another site's page sent the request
// (https://www.w3.org/TR/fetch-metadata/). It allows navigation to the page, whose response that
// site can't read.
func foreign(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		return false
	}
	return r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Header.Get("Sec-Fetch-Dest") != "document"
}

// look writes the current view. It writes nothing if the browser has closed the connection.
func (s *Server) look(w http.ResponseWriter, r *http.Request) {
	if v, err := s.shown(r.Context()); err == nil {
		write(w, http.StatusOK, v)
	}
}

func (s *Server) find(w http.ResponseWriter, r *http.Request) {
	if v, err := s.shown(r.Context()); err == nil {
		some, all := v.Find(r.URL.Query().Get("q"), hits)
		write(w, http.StatusOK, map[string]any{"hits": some, "all": all})
	}
}

func (s *Server) inspect(w http.ResponseWriter, r *http.Request) {
	_, of, err := survey.ParseObject(r.URL.Query().Get("about"))
	if err != nil {
		write(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
		return
	}
	live, err := s.feed.Look(r.Context())
	if err != nil {
		return // the browser has closed the connection
	}
	page, err := of(live.Snapshot)
	switch {
	case errors.Is(err, survey.ErrNoObject):
		write(w, http.StatusNotFound, map[string]string{"error": err.Error()})
	case err != nil:
		write(w, http.StatusBadGateway, map[string]string{"error": err.Error()})
	default:
		write(w, http.StatusOK, page)
	}
}

// write writes a value as JSON. All values passed to it can be encoded.
func write(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value) // fails only if the browser has closed the connection
}
