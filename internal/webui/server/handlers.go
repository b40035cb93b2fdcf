package server

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/internal/webui"
)

//go:embed page
var embedded embed.FS

const (
	// browsers is how many streams there may be at once: a browser has six connections to
	// a server of HTTP/1.1, and needs one of them for whatever else a window asks.
	browsers = 5
	// hits is how many finds of a search are shown.
	hits = 12
	// pulse is how often an idle stream says that it lives, so that a browser notices
	// when the other end is gone without a word.
	pulse = 15 * time.Second
)

// policy lets the page load what it consists of, from here, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// Handler answers requests; all but the page is JSON.
func (s *Server) Handler() http.Handler {
	files, err := fs.Sub(embedded, "page")
	if err != nil {
		panic(err) // embedded at build time
	}
	mux := http.NewServeMux()
	base := "/" + s.key + "/"
	mux.Handle("GET "+base, http.StripPrefix(base, http.FileServerFS(files)))
	mux.HandleFunc("GET "+base+"stream", s.stream)
	mux.HandleFunc("GET "+base+"find", s.find)
	mux.HandleFunc("GET "+base+"inspect", s.inspect)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "Nothing is here: open the URL that underlayctl ui printed.", http.StatusNotFound)
	})
	return guarded(mux)
}

// guarded refuses who is not the person's own browser, and sets what keeps the page to
// itself.
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
			text := fmt.Sprintf("Host %q is not this machine: open the URL that underlayctl ui printed.", r.Host)
			http.Error(w, text, http.StatusMisdirectedRequest)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "This page is for looking only.", http.StatusMethodNotAllowed)
		case foreign(r):
			http.Error(w, "Another site may not ask for this.", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// loopback reports whether a Host names this machine to itself. The port may be
// another one, as through ssh -L.
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

// foreign reports whether a browser says that another site's page asks: by a link it
// may, for anything that it could read it may not (https://www.w3.org/TR/fetch-metadata/).
func foreign(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		return false
	}
	return r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Header.Get("Sec-Fetch-Dest") != "document"
}

// stream sends what is shown, now and whenever it changes, until the browser goes.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	news, leave, ok := s.hub.join(browsers)
	if !ok {
		// No status of an error: the browser would not come again, nor tell the page why.
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "retry: 5000\nevent: full\ndata: \n\n")
		return
	}
	defer leave()
	defer s.feed.Attend()()
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	say := func(text string) error {
		if _, err := fmt.Fprintf(w, "%s\n\n", text); err != nil {
			return err
		}
		return out.Flush()
	}
	beat := time.NewTicker(pulse)
	defer beat.Stop()
	err := say("retry: 1000")
	for err == nil {
		select {
		case <-r.Context().Done():
			return
		case <-news:
			if text := s.hub.now().text; text != nil {
				err = say("data: " + string(text))
			}
		case <-beat.C:
			err = say(":")
		}
	}
}

// found is the answer to a search.
type found struct {
	Hits []webui.Hit `json:"hits"`
	All  int         `json:"all"`
}

func (s *Server) find(w http.ResponseWriter, r *http.Request) {
	answer := found{Hits: []webui.Hit{}}
	if v := s.hub.now().message.View; v != nil {
		answer.Hits, answer.All = v.Find(r.URL.Query().Get("q"), hits)
	}
	write(w, http.StatusOK, answer)
}

// refusal says why there is no answer.
type refusal struct {
	Error string `json:"error"`
}

func (s *Server) inspect(w http.ResponseWriter, r *http.Request) {
	subject, err := webui.ParseSubject(r.URL.Query().Get("id"))
	if err != nil {
		write(w, http.StatusBadRequest, refusal{err.Error()})
		return
	}
	look, err := s.feed.Inspect(r.Context(), subject.Want())
	if err != nil {
		write(w, http.StatusBadGateway, refusal{err.Error()})
		return
	}
	told, err := subject.Inspect(look)
	switch {
	case errors.Is(err, survey.ErrNoObject):
		write(w, http.StatusNotFound, refusal{err.Error()})
	case err != nil:
		write(w, http.StatusBadGateway, refusal{err.Error()})
	default:
		write(w, http.StatusOK, told)
	}
}
