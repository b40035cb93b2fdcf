package robot

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/underlay-ccm/underlay/internal/robot"
)

// Options are what a Client needs.
type Options struct {
	// Endpoint is the web service's address: of https, or on this machine; empty: the real one's.
	Endpoint    string
	Credentials robot.Credentials
	// Run is the name of the run, of which the names of its vSwitches are made.
	Run string
	// Journal notes logins; nil: one of this process.
	Journal *Journal
	// Version goes into the User-Agent.
	Version string
	// Transport is the way to the web service; nil: one that uses each connection once. It must not
	// repeat requests by itself.
	Transport http.RoundTripper
}

// Client asks the web service, one request after the other.
type Client struct {
	endpoint, agent, run string
	credentials          robot.Credentials
	journal              *Journal
	http                 *http.Client

	mu     sync.Mutex // held during a request; guards what follows
	proven bool       // the credentials were accepted
	broken error      // why nothing more is sent
	wrong  bool       // the login that must fail was sent
	sent   map[operation]int
	// owned are the vSwitches that bear the name of a run, with the server that it has put into each;
	// 0: none that is known of.
	owned map[int64]int64
}

const (
	// requestTimeout bounds one request; the service answers within seconds.
	requestTimeout = 30 * time.Second
	// maxAnswer is more than a list of ten thousand servers needs.
	maxAnswer = 32 << 20
)

// New prepares a client. It sends nothing.
func New(o Options) (*Client, error) {
	endpoint, err := checked(cmp.Or(o.Endpoint, robot.DefaultEndpoint))
	if err != nil {
		return nil, err
	}
	if o.Run == "" {
		return nil, errors.New("the run has no name, by which its vSwitches at Robot are known")
	}
	if o.Journal == nil {
		o.Journal = &Journal{}
	}
	if o.Transport == nil {
		o.Transport = robot.NewTransport()
	}
	return &Client{
		endpoint: endpoint, agent: strings.TrimSuffix("hcloud-sim-measure/"+o.Version, "/"),
		run: o.Run, credentials: o.Credentials, journal: o.Journal,
		http: &http.Client{
			// A redirect would carry the password to whoever it names.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Transport:     o.Transport,
		},
		sent: map[operation]int{}, owned: map[int64]int64{},
	}, nil
}

// do asks for an operation, by the rules of the package, and reads its answer. It took so long once
// the connection stood.
func (c *Client) do(
	ctx context.Context, op operation, path string, form url.Values, into any,
) (took time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil {
		return 0, c.broken
	}
	if c.sent[op] >= op.most {
		return 0, &OverBudgetError{op.name()}
	}
	noted := time.Now()
	if !c.proven {
		if err := c.mayFail(noted, mostFailures-1); err != nil {
			return 0, err
		}
	}
	c.sent[op]++
	a, err := c.send(ctx, op.method, path, form, c.credentials.Authorize)
	if err != nil {
		if !a.reached && !c.proven {
			err = errors.Join(err, c.journal.strike(noted))
		}
		return 0, err
	}
	if a.refusesLogin() {
		c.broken = &LoginError{a.status}
		return 0, c.broken
	}
	if !c.proven && a.acceptsLogin() {
		c.proven = true
		if err := c.journal.strike(noted); err != nil {
			return 0, err
		}
	}
	return a.took, a.read(into)
}

// mayFail notes a login that may fail, unless more of them than a number are noted.
func (c *Client) mayFail(now time.Time, most int) error {
	if n := c.journal.failed(now); n > most {
		return &JournalError{Failed: n, Until: c.journal.safeAt()}
	}
	return c.journal.note(now)
}

// answer is what came back.
type answer struct {
	// reached: the request may have reached the service, though no answer came.
	reached bool

	status int
	body   []byte
	took   time.Duration
}

// send sends one request.
func (c *Client) send(
	ctx context.Context, method, path string, form url.Values, authorize func(*http.Request),
) (answer, error) {
	if err := ctx.Err(); err != nil {
		return answer{}, err
	}
	if method != http.MethodGet { // a change that is given up may be carried out, and nobody knows
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	began := time.Now()
	var mu sync.Mutex // the trace comes from the transport's goroutine
	// A transport without connections traces nothing: then every request may have got there.
	reached := true
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) {
			mu.Lock()
			defer mu.Unlock()
			reached = false
		},
		GotConn: func(httptrace.GotConnInfo) {
			mu.Lock()
			defer mu.Unlock()
			began, reached = time.Now(), true
		},
	})
	r, err := http.NewRequestWithContext(ctx, method, c.endpoint+path, strings.NewReader(form.Encode()))
	if err != nil {
		return answer{}, fmt.Errorf("building the request: %w", err)
	}
	r.Header.Set("User-Agent", c.agent)
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	authorize(r)
	resp, err := c.http.Do(r)
	if err != nil {
		mu.Lock()
		defer mu.Unlock()
		return answer{reached: reached}, fmt.Errorf("the Robot web service doesn't answer: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	mu.Lock()
	defer mu.Unlock()
	a := answer{reached: true, status: resp.StatusCode, body: body, took: time.Since(began)}
	if err != nil && !a.refusesLogin() { // which doesn't wait for a body
		return a, fmt.Errorf("reading the Robot web service's answer: %w", err)
	}
	return a, nil
}

// refusesLogin reports whether the login was refused: documented is 401, others have seen 403, which
// is documented for quotas alone.
func (a answer) refusesLogin() bool {
	return a.status == http.StatusUnauthorized ||
		a.status == http.StatusForbidden && robot.ReadError(a.status, a.body).Code != robot.CodeRateLimit
}

// acceptsLogin reports whether the web service has looked at the login and taken it. What stands in
// front of it, and a maintenance, say nothing of it.
func (a answer) acceptsLogin() bool {
	return a.status < http.StatusMultipleChoices ||
		a.status < http.StatusInternalServerError && robot.ReadError(a.status, a.body).Code != ""
}

// read decodes a success; nil: its body doesn't matter, changes have none.
func (a answer) read(into any) error {
	if a.status >= http.StatusMultipleChoices {
		return robot.ReadError(a.status, a.body)
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(a.body, into); err != nil {
		return fmt.Errorf("reading the Robot web service's answer: %w", err)
	}
	return nil
}

// Ping reads a list, and says how long the answer took.
func (c *Client) Ping(ctx context.Context) (time.Duration, error) {
	took, err := c.do(ctx, listVSwitches, listVSwitches.path, nil, new([]json.RawMessage))
	if err != nil {
		return 0, fmt.Errorf("listing vSwitches: %w", err)
	}
	return took, nil
}

// WrongLogin logs in, once, as somebody who isn't there, and returns the status of the answer. It is
// one of the three failures that block this address, so it is not sent unless the right credentials
// have been accepted and no other failure is known.
func (c *Client) WrongLogin(ctx context.Context) (status int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.broken != nil:
		return 0, c.broken
	case !c.proven:
		return 0, errors.New("a login that must fail is tried only after one that was accepted")
	case c.wrong:
		return 0, errors.New("a login that must fail is tried only once")
	}
	noted := time.Now()
	if err := c.mayFail(noted, 0); err != nil {
		return 0, err
	}
	c.wrong = true
	c.sent[listVSwitches]++
	a, err := c.send(ctx, listVSwitches.method, listVSwitches.path, nil, func(r *http.Request) {
		r.SetBasicAuth("underlay-measure", "no password")
	})
	if err != nil {
		return 0, err
	}
	if a.status < http.StatusMultipleChoices {
		return a.status, c.journal.strike(noted)
	}
	return a.status, nil
}
