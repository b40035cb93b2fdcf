package project

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/internal/requests"
	"github.com/underlay-ccm/underlay/internal/secret"
)

// Label marks what was made here.
const Label = "underlay.dev/measure"

// namePrefix begins the names of what was made here: a label alone is soon copied to something else.
const namePrefix = "underlay-measure-"

// requestTimeout bounds one request; the API answers within seconds.
const requestTimeout = 30 * time.Second

// Options are what a Project needs.
type Options struct {
	// Token is the project's, with permission to read and write.
	Token secret.Text
	// Endpoint is the API's address including its version path.
	Endpoint string
	// Transport is the way to the API; nil means that of requests.NewTransport.
	Transport http.RoundTripper
	// Version goes into the User-Agent.
	Version string
	// Progress, if set, is told what is being removed, in a line without an end.
	Progress func(string)
}

// Project makes and removes throw-away things.
type Project struct {
	progress func(string)
	client   *hcloud.Client
	way      *way
	timings  timings
	key      *hcloud.SSHKey
}

// New prepares a Project. It sends nothing.
func New(o Options) *Project {
	p := &Project{progress: o.Progress, way: &way{next: o.Transport, replied: map[int64]time.Time{}}}
	if p.progress == nil {
		p.progress = func(string) {}
	}
	if p.way.next == nil {
		p.way.next = requests.NewTransport()
	}
	p.client = hcloud.NewClient(
		hcloud.WithToken(o.Token.Reveal()), hcloud.WithEndpoint(o.Endpoint),
		hcloud.WithApplication("hcloud-sim-measure", o.Version),
		hcloud.WithHTTPClient(&http.Client{Transport: p.way, CheckRedirect: noRedirect}),
		hcloud.WithRetryOpts(hcloud.RetryOpts{MaxRetries: 0}),
	)
	return p
}

// noRedirect has a redirect as the reply: the token goes nowhere but to the endpoint.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Client speaks to the API, and tries nothing again.
func (p *Project) Client() *hcloud.Client { return p.client }

// Name is a name for something that is made here.
func (p *Project) Name(what string) string { return namePrefix + what }

// Labels are those of everything that is made here.
func (p *Project) Labels() map[string]string { return map[string]string{Label: ""} }

// way is the way to the API.
type way struct {
	next http.RoundTripper

	mu sync.Mutex
	// replied is when a reply named an action first.
	replied map[int64]time.Time
	lost    atomic.Bool // the reply to a change, once
}

// RoundTrip implements [http.RoundTripper].
func (w *way) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	if err := ctx.Err(); err != nil {
		return nil, err // nothing new is begun
	}
	if r.Method != http.MethodGet {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resp, err := w.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		w.lost.Store(w.lost.Load() || r.Method != http.MethodGet)
		return nil, err
	}
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		return nil, fmt.Errorf("reading the reply: %w", err)
	}
	if r.Method != http.MethodGet {
		w.note(text, time.Now())
	}
	resp.Body = io.NopCloser(bytes.NewReader(text))
	return resp, nil
}

// note notes when the actions in a reply were named.
func (w *way) note(reply []byte, now time.Time) {
	type action struct{ ID int64 }
	var named struct {
		Action  action   `json:"action"`
		Actions []action `json:"actions"`
		Next    []action `json:"next_actions"`
	}
	_ = json.Unmarshal(reply, &named) // an error names none
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range append(append(named.Actions, named.Next...), named.Action) {
		if _, known := w.replied[a.ID]; !known {
			w.replied[a.ID] = now
		}
	}
}

// began is when a reply named an action, or now.
func (w *way) began(action int64) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at, known := w.replied[action]; known {
		return at
	}
	return time.Now()
}
