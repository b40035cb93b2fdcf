package server

import (
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/internal/webui"
	"github.com/underlay-ccm/underlay/test/testenv/snapshots"
)

// feed returns one snapshot.
type feed struct {
	live atomic.Pointer[survey.Live]
}

func (f *feed) Look(context.Context) (survey.Live, error) { return *f.live.Load(), nil }

func fed(t *testing.T) *feed {
	t.Helper()
	s, err := snapshots.Eventful(3)
	if err != nil {
		t.Fatal(err)
	}
	f := &feed{}
	f.live.Store(&survey.Live{Snapshot: s})
	return f
}

// answer returns the response to a request.
func answer(t *testing.T, s *Server, method, path string, header map[string]string) *http.Response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "http://127.0.0.1:1"+path, nil)
	for name, value := range header {
		if name == "Host" {
			r.Host = value
		} else {
			r.Header.Set(name, value)
		}
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w.Result()
}

func TestAcceptedRequests(t *testing.T) {
	s := New(fed(t))
	own := "/" + s.key + "/"
	for name, c := range map[string]struct {
		method, path string
		header       map[string]string
		want         int
	}{
		"the page":                    {http.MethodGet, own, nil, 200},
		"its script":                  {http.MethodGet, own + "page.js", nil, 200},
		"only the head":               {http.MethodHead, own, nil, 200},
		"by name":                     {http.MethodGet, own, map[string]string{"Host": "localhost:8080"}, 200},
		"by IPv6":                     {http.MethodGet, own, map[string]string{"Host": "[::1]:8080"}, 200},
		"without a port":              {http.MethodGet, own, map[string]string{"Host": "127.0.0.1"}, 200},
		"what is shown":               {http.MethodGet, own + "view", nil, 200},
		"the page's own script":       {http.MethodGet, own + "find?q=a", map[string]string{"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}, 200},
		"from a link elsewhere":       {http.MethodGet, own, map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 200},
		"without the key":             {http.MethodGet, "/", nil, 404},
		"a script without the key":    {http.MethodGet, "/page.js", nil, 404},
		"with another key":            {http.MethodGet, "/" + strings.Repeat("A", len(s.key)) + "/view", nil, 404},
		"a file that isn't there":     {http.MethodGet, own + "other", nil, 404},
		"out of the folder":           {http.MethodGet, own + "../server.go", nil, 307},
		"a name that points here":     {http.MethodGet, own, map[string]string{"Host": "evil.example:8080"}, 421},
		"an address of the machine":   {http.MethodGet, own, map[string]string{"Host": "192.0.2.1:8080"}, 421},
		"localhost as a part":         {http.MethodGet, own, map[string]string{"Host": "localhost.evil.example"}, 421},
		"no host":                     {http.MethodGet, own, map[string]string{"Host": ""}, 421},
		"another site's script":       {http.MethodGet, own + "find?q=a", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}, 403},
		"another port's script":       {http.MethodGet, own + "page.js", map[string]string{"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}, 403},
		"in a frame of another site":  {http.MethodGet, own, map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, 403},
		"a write":                     {http.MethodPost, own, nil, 405},
		"a deletion":                  {http.MethodDelete, own + "inspect?about=Node/control-1", nil, 405},
		"a Node":                      {http.MethodGet, own + "inspect?about=Node/control-1", nil, 200},
		"a Service":                   {http.MethodGet, own + "inspect?about=Service/shop/web", nil, 200},
		"a Node that isn't there":     {http.MethodGet, own + "inspect?about=Node/nobody", nil, 404},
		"something that has no story": {http.MethodGet, own + "inspect?about=routes/10.0.0.0/8", nil, 400},
	} {
		t.Run(name, func(t *testing.T) {
			a := answer(t, s, c.method, c.path, c.header)
			defer a.Body.Close()
			body, _ := io.ReadAll(a.Body)
			if a.StatusCode != c.want {
				t.Errorf("%d, want %d: %s", a.StatusCode, c.want, body)
			}
			if a.StatusCode != 200 && strings.Contains(string(body), s.key) {
				t.Errorf("the key is given away: %s", body)
			}
			if got := a.Header.Get("Content-Security-Policy"); !strings.HasPrefix(got, "default-src 'none'; script-src 'self'") || strings.Contains(got, "unsafe") {
				t.Errorf("policy %q", got)
			}
			if a.StatusCode == 200 && a.Header.Get("Cache-Control") != "no-store" || a.Header.Get("X-Content-Type-Options") != "nosniff" || a.Header.Get("Referrer-Policy") != "no-referrer" {
				t.Errorf("headers %v", a.Header)
			}
		})
	}
}

// The page is small, and refers to nothing outside of itself.
func TestThePageIsWhole(t *testing.T) {
	size, outside := 0, regexp.MustCompile(`(?i)https?:|//[a-z]|@import|url\(|eval\(|innerHTML|new Function|style="|\son[a-z]+="`)
	err := fs.WalkDir(embedded, "page", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(embedded, path)
		size += len(content)
		text := strings.ReplaceAll(string(content), "http://www.w3.org/2000/svg", "")
		if found := outside.FindString(text); found != "" {
			t.Errorf("%s has %q", path, found)
		}
		return err
	})
	if err != nil || size == 0 || size > 40_000 {
		t.Errorf("%v, %d bytes, want at most 40 kB", err, size)
	}
}

func TestEveryServerHasAKeyOfItsOwn(t *testing.T) {
	a, b := New(fed(t)), New(fed(t))
	if a.key == b.key || len(a.key) < 26 { // 130 bits
		t.Errorf("%q and %q", a.key, b.key)
	}
}

func TestListensOnLoopbackOnly(t *testing.T) {
	l, err := Listen(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if !strings.HasPrefix(l.Addr().String(), "127.0.0.1:") {
		t.Errorf("listens on %s", l.Addr())
	}
}

// served runs a server.
func served(t *testing.T, f *feed) (url string, stop func()) {
	t.Helper()
	s := New(f)
	l, err := Listen(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	return s.URL(l), func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("serving: %v", err)
		}
	}
}

// viewed returns the view that a browser gets now.
func viewed(t *testing.T, url string) (v webui.View) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"view", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestThePageIsUpToDate(t *testing.T) {
	f := fed(t)
	url, stop := served(t, f)
	defer stop()
	nodes := func(v webui.View) int { return len(v.Parts[1].Tables[0].Rows) }
	if v := viewed(t, url); nodes(v) != 4 || v.Trouble != "" {
		t.Errorf("%d Nodes, %q", nodes(v), v.Trouble)
	}
	next, err := snapshots.Eventful(5)
	if err != nil {
		t.Fatal(err)
	}
	f.live.Store(&survey.Live{Snapshot: next, Trouble: "it is away"})
	if v := viewed(t, url); nodes(v) != 6 || v.Trouble != "it is away" {
		t.Errorf("%d Nodes, %q", nodes(v), v.Trouble)
	}
}
