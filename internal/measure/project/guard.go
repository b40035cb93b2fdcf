package project

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/underlay-ccm/underlay/internal/requests"
	"github.com/underlay-ccm/underlay/internal/secret"
)

// ErrRefused is in every error of a request that was not sent, because a rule forbids it.
var ErrRefused = errors.New("refused by the run's own rules")

// maxBody is more than any request or reply has, in bytes.
const maxBody = 16 << 20

// requestTimeout bounds one request; the API answers within seconds.
const requestTimeout = 30 * time.Second

// justNow is how old what is known of a thing may be when something is taken away from it.
const justNow = 2 * time.Second

// guard is the way to the API, and where the rules of the package hold.
type guard struct {
	base  *url.URL
	token secret.Text
	run   string
	plan  Plan
	next  http.RoundTripper
	say   func(string)
	pace  pace

	mu sync.Mutex
	// owned are the things of the run that aren't known to be gone, ever all that it had.
	owned map[ref]thing
	ever  map[ref]bool
	// spared are those that bear a run's label or were the run's, and whose name says otherwise.
	spared map[ref]thing
	// addresses are the public ones, by their IDs, that came with servers and load balancers of
	// the run, and that aren't known to be gone.
	addresses map[int64]ref
	// made counts what has been made, or may have been.
	made Plan
	// closed: nothing is made any more; the cause, for people.
	closed string
	// making counts the requests that make something and are under way; lost those of which nobody
	// knows what became of them.
	making sync.WaitGroup
	lost   int
	// replied is when a reply named an action first.
	replied   map[int64]time.Time
	latencies []time.Duration
}

func newGuard(base *url.URL, o Options) *guard {
	g := &guard{
		base: base, token: o.Token, run: o.Run, plan: o.Plan, next: o.Transport,
		owned: map[ref]thing{}, ever: map[ref]bool{}, replied: map[int64]time.Time{},
		spared: map[ref]thing{}, addresses: map[int64]ref{},
	}
	if g.next == nil {
		g.next = requests.NewTransport()
	}
	return g
}

// RoundTrip implements [http.RoundTripper].
func (g *guard) RoundTrip(r *http.Request) (*http.Response, error) {
	asked, err := g.understand(r)
	if err != nil {
		return nil, refusal(r, err)
	}
	if instead, err := g.lookAgain(r, asked); instead != nil || err != nil {
		return instead, err
	}
	if err := g.pace.wait(r.Context(), g.say); err != nil {
		return nil, err // the end of its context: nothing new is begun then
	}
	if err := g.allow(asked); err != nil {
		return nil, refusal(r, err)
	}
	resp, err := g.send(r, asked)
	if asked.makes() {
		g.account(asked, resp, err)
	}
	return resp, err
}

func refusal(r *http.Request, why error) error {
	return fmt.Errorf("%s %s: %w: %w", r.Method, r.URL.Path, ErrRefused, why)
}

// lookAgain looks at what a request would take something away from, unless that was seen just now:
// somebody may have begun to use it. A reply that doesn't show it is the one to the request: it is
// gone, or the API has no answer.
func (g *guard) lookAgain(r *http.Request, asked request) (*http.Response, error) {
	if asked.op == nil || !asked.op.takes() {
		return nil, nil
	}
	g.mu.Lock()
	t, owned := g.owned[ref{asked.kind, asked.id}]
	g.mu.Unlock()
	if !owned || time.Since(t.seen) < justNow {
		return nil, nil
	}
	if err := g.pace.wait(r.Context(), g.say); err != nil {
		return nil, err
	}
	look := request{method: http.MethodGet, below: t.path(), kind: t.kind, id: t.id}
	resp, err := g.send(r, look)
	if err != nil {
		return nil, fmt.Errorf("looking at %s %q first: %w", t.kind, t.name, err)
	}
	if resp.StatusCode != http.StatusOK {
		return resp, nil
	}
	return nil, nil
}

// allow judges a change by what is known now, and counts what it makes.
func (g *guard) allow(asked request) error {
	if asked.reads() {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.judge(asked); err != nil {
		return err
	}
	if asked.makes() {
		if err := g.reserve(asked.kind); err != nil {
			return err
		}
		g.making.Add(1)
	}
	return nil
}

// judge applies the rules to a change.
func (g *guard) judge(asked request) error {
	about := ref{asked.kind, asked.id}
	switch {
	case asked.op.makes:
		if err := asked.op.body.complete(asked.body); err != nil {
			return err
		}
	case !g.owns(about):
		return fmt.Errorf("%s %d was not made by this run", asked.kind, asked.id)
	case asked.op.takes():
		if err := g.letsGo(about); err != nil {
			return err
		}
	}
	if asked.op.body == nil && len(asked.body) > 0 {
		return errors.New("it has no body")
	}
	return asked.op.body.judge(g, asked.body)
}

// owns reports whether the run has made something that isn't known to be gone.
func (g *guard) owns(r ref) bool {
	_, owned := g.owned[r]
	return owned
}

// letsGo refuses to take something away from what isn't the run's.
func (g *guard) letsGo(r ref) error {
	t := g.owned[r]
	if t.volumes {
		return fmt.Errorf("%s %q has a volume, which was not made by this run", t.kind, t.name)
	}
	for _, other := range t.holds {
		if !g.ever[other] {
			return fmt.Errorf("%s %q is in use by %s %d, which was not made by this run",
				t.kind, t.name, other.kind, other.id)
		}
	}
	return nil
}

// reserve counts what is about to be made.
func (g *guard) reserve(k kind) error {
	if g.closed != "" {
		return errors.New(g.closed)
	}
	have, most := count(&g.made.Things, k), count(&g.plan.Things, k)
	if have == nil {
		return nil
	}
	if *have >= *most {
		return fmt.Errorf("the plan has %d of kind %s altogether: they have been made", *most, k)
	}
	*have++
	return nil
}

// account says what became of a request that makes something. What the API has refused costs
// nothing; of everything else it is not sure.
func (g *guard) account(asked request, resp *http.Response, err error) {
	defer g.making.Done()
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case err == nil && resp.StatusCode < 300:
	case err == nil && resp.StatusCode >= 400 && resp.StatusCode < 500 && isAPI(resp):
		if have := count(&g.made.Things, asked.kind); have != nil {
			*have--
		}
	default:
		g.lost++
	}
}

// isAPI reports whether an error comes from the API, and not from something in between.
func isAPI(resp *http.Response) bool {
	return strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json")
}

// sent is the key of a context's *time.Time that gets the time at which a request was sent, after
// it was held back.
type sent struct{}

// send sends what was judged, and nothing else of a request, and learns from the reply.
func (g *guard) send(r *http.Request, asked request) (*http.Response, error) {
	ctx := r.Context()
	if !asked.reads() {
		// One that is under way isn't cut short, so that its fate is known.
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	out, err := g.rewrite(ctx, r, asked)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if at, wanted := ctx.Value(sent{}).(*time.Time); wanted {
		*at = began
	}
	resp, err := g.next.RoundTrip(out)
	if err != nil {
		g.pace.took(nil)
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	_ = resp.Body.Close()
	g.pace.took(resp)
	g.learn(asked, resp, text, began)
	resp.Body = io.NopCloser(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("reading the reply: %w", err)
	}
	return resp, nil
}

// rewrite makes the request that is sent: of what the caller wrote, it has what was judged.
func (g *guard) rewrite(
	ctx context.Context, r *http.Request, asked request,
) (*http.Request, error) {
	to := *g.base
	to.Path += asked.below
	to.RawQuery = r.URL.RawQuery
	var body io.Reader
	if asked.body != nil {
		text, err := json.Marshal(asked.body)
		if err != nil {
			return nil, fmt.Errorf("writing its body: %w", err)
		}
		body = bytes.NewReader(text)
	}
	out, err := http.NewRequestWithContext(ctx, asked.method, to.String(), body)
	if err != nil {
		return nil, err
	}
	out.Header.Set("Authorization", "Bearer "+g.token.Reveal())
	out.Header.Set("Accept", "application/json")
	out.Header.Set("User-Agent", r.UserAgent())
	if body != nil {
		out.Header.Set("Content-Type", "application/json")
	}
	return out, nil
}
