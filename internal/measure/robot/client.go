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
	"sync/atomic"
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
	http                 *http.Client

	mu     sync.Mutex // held during a request; guards what follows
	proven bool       // the credentials were accepted
	broken error      // why nothing more is sent
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
	if o.Transport == nil {
		o.Transport = robot.NewTransport()
	}
	return &Client{
		endpoint: endpoint, agent: strings.TrimSuffix("hcloud-sim-measure/"+o.Version, "/"),
		run: o.Run, credentials: o.Credentials,
		http: &http.Client{
			// A redirect would carry the password to whoever it names.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Transport:     o.Transport,
		},
		owned: map[int64]int64{},
	}, nil
}

// do asks the web service, unless it has refused the credentials, and reads its answer. It took so long
// once the connection stood.
func (c *Client) do(
	ctx context.Context, method, path string, form url.Values, into any,
) (took time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil {
		return 0, c.broken
	}
	a, err := c.send(ctx, method, path, form, c.credentials.Authorize)
	if err != nil {
		return 0, err
	}
	if a.refusesLogin() {
		c.broken = &LoginError{a.status}
		return 0, c.broken
	}
	c.proven = c.proven || a.status < http.StatusMultipleChoices
	return a.took, a.read(into)
}

// LoginError says that the user and the password are refused; nothing more is sent with them.
type LoginError struct{ Status int }

func (e *LoginError) Error() string {
	return fmt.Sprintf("the Robot web service refuses the user and the password (%d); put in those of the web "+
		"service user in Robot's settings; nothing more was sent, because three failed logins block this address "+
		"for ten minutes", e.Status)
}

// answer is what came back.
type answer struct {
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
	var connected atomic.Int64 // the trace comes from the transport's goroutine
	connected.Store(time.Now().UnixNano())
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(time.Now().UnixNano()) },
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
		return answer{}, fmt.Errorf("the Robot web service doesn't answer: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	took := time.Since(time.Unix(0, connected.Load()))
	a := answer{status: resp.StatusCode, body: body, took: took}
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
	took, err := c.do(ctx, http.MethodGet, "/vswitch", nil, new([]json.RawMessage))
	if err != nil {
		return 0, fmt.Errorf("listing vSwitches: %w", err)
	}
	return took, nil
}

// WrongLogin logs in as somebody who isn't there, and returns the status of the answer. It is one of
// the three failures that block this address, so it is not sent unless the right credentials have
// been accepted.
func (c *Client) WrongLogin(ctx context.Context) (status int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil || !c.proven {
		return 0, errors.Join(errors.New("a login that must fail is tried only after one that was accepted"), c.broken)
	}
	a, err := c.send(ctx, http.MethodGet, "/vswitch", nil, func(r *http.Request) {
		r.SetBasicAuth("underlay-measure", "no password")
	})
	return a.status, err
}
