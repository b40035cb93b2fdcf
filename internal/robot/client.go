package robot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/internal/promauto"
	"github.com/underlay-ccm/underlay/internal/requests"
)

// DefaultEndpoint is the URL of the web service.
const DefaultEndpoint = "https://robot-ws.your-server.de"

// Registry registers metrics; component-base's registries implement it.
type Registry interface {
	promauto.Registry
	CustomRegister(metrics.StableCollector) error
}

// Options configures a Client.
type Options struct {
	// Endpoint is the URL of the web service; empty means DefaultEndpoint.
	Endpoint string
	// Credentials is called for every request, so that new credentials are used without a
	// restart.
	Credentials func() (Credentials, error)
	// Version is sent in the User-Agent.
	Version string

	Registry Registry
	// Transport sends the requests; nil means NewTransport. It must not retry by itself.
	Transport http.RoundTripper
}

// Client sends all of the account's requests to the web service.
type Client struct {
	endpoint string
	agent    string
	http     *http.Client
	login    *login
	quotas   map[operation]*quota
	outage   *outage

	requests *metrics.CounterVec
	waits    *metrics.HistogramVec
	refused  *metrics.Gauge
}

const (
	// requestTimeout bounds one request; the service responds within seconds.
	requestTimeout = 30 * time.Second
	// routeTimeout bounds a request that routes a failover address, which takes a minute.
	routeTimeout = 3 * time.Minute
)

// New returns a client. It sends no request.
func New(o Options) (*Client, error) {
	endpoint := cmp.Or(o.Endpoint, DefaultEndpoint)
	base, err := url.Parse(endpoint)
	if err != nil || base.Scheme == "" || base.Host == "" {
		return nil, fmt.Errorf("endpoint %q is not a URL such as %s", endpoint, DefaultEndpoint)
	}
	next := o.Transport
	if next == nil {
		next = NewTransport()
	}
	c := &Client{
		endpoint: strings.TrimSuffix(endpoint, "/"),
		agent:    strings.TrimSuffix("underlay-ccm/"+o.Version, "/"),
		http: &http.Client{
			// A redirect would send the password to another host.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Transport:     next,
		},
		login: newLogin(o.Credentials), quotas: map[operation]*quota{},
	}
	for _, op := range operations() {
		c.quotas[op] = newQuota(op.quota)
	}
	return c, c.register(o)
}

// NewTransport returns a transport that uses each connection once. If the server has closed a
// kept connection, net/http repeats the request: the first one may have reached the service and
// be a failed login that is not counted.
func NewTransport() http.RoundTripper {
	t := requests.NewTransport()
	t.DisableKeepAlives = true
	return t
}

func (c *Client) register(o Options) error {
	f := promauto.With(o.Registry, "robot_requests")
	c.requests = f.CounterVec("total", "Number of requests sent to the Robot web service by operation (such as `GET /server`), priority (urgent, normal, background) and code (the HTTP status, or `unanswered`).",
		"operation", "priority", "code")
	c.waits = f.HistogramVec("wait_seconds",
		"Seconds that requests were held back for their operation's quota or another request's login, until they were sent or given up, by priority (urgent, normal, background).",
		[]float64{0.01, 1, 10, 60, 300, 900}, "priority")
	c.refused = f.Gauge("credentials_refused", "1 while the Robot web service refuses the user and the password, which are not tried again before they change or an hour has passed.")
	c.outage = &outage{gone: f.Gauge("unavailable", "1 while the Robot web service doesn't respond.")}
	if err := errors.Join(f.Err(), o.Registry.CustomRegister(newRemaining(c.quotas))); err != nil {
		return fmt.Errorf("registering the Robot request metrics: %w", err)
	}
	return nil
}

// do sends the request of an operation and decodes the response. A request that is rejected
// before it is sent costs no quota.
func (c *Client) do(
	ctx context.Context, op operation, path string, form url.Values, into any,
) error {
	t, err := c.hold(ctx, op)
	if err != nil {
		return err
	}
	result, err := c.send(ctx, op, path, form, t.credentials, into)
	t.end(result)
	var response *Error
	errors.As(err, &response)
	c.quotas[op].result(true, response)
	switch {
	case result == refused:
		c.outage.succeeded()
		c.refused.Set(1)
		return &CredentialsError{Until: time.Now().Add(refusedFor)}
	case result == accepted:
		c.refused.Set(0)
	}
	switch {
	case err == nil || response != nil:
		c.outage.succeeded()
		return err
	case errors.As(err, new(*badResponse)), // a problem of decoding, not of the network
		ctx.Err() != nil: // ended by the caller
		c.outage.unknown()
		return err
	default:
		return c.outage.failed(err)
	}
}

// hold waits until an operation may be requested, and returns its login turn.
func (c *Client) hold(ctx context.Context, op operation) (t *turn, err error) {
	if err := c.outage.check(); err != nil {
		return nil, err
	}
	began, q := time.Now(), c.quotas[op]
	defer func() {
		waited := time.Since(began).Seconds()
		c.waits.WithLabelValues(requests.PriorityOf(ctx).String()).Observe(waited)
	}()
	if err := q.spend(ctx); err != nil {
		return nil, err
	}
	if t, err = c.login.enter(ctx); err == nil {
		if err = c.outage.admit(); err == nil {
			return t, nil
		}
		t.end(unsent) // another request failed during the wait
	}
	q.result(false, nil)
	return nil, err
}

// send sends one request and returns the outcome of its login. An *Error is the service's reply,
// a *badResponse an invalid response; any other error means that the service doesn't respond.
func (c *Client) send(
	ctx context.Context, op operation, path string, form url.Values, credentials Credentials, into any,
) (outcome, error) {
	limit := requestTimeout
	if op.routes() {
		limit = routeTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, op.method, c.endpoint+path,
		strings.NewReader(form.Encode()))
	if err != nil {
		return unsent, &badResponse{fmt.Errorf("building the request: %w", err)}
	}
	r.Header.Set("User-Agent", c.agent)
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	credentials.Authorize(r)
	resp, err := c.http.Do(r)
	code := "unanswered"
	if err == nil {
		code = strconv.Itoa(resp.StatusCode)
	}
	c.requests.WithLabelValues(op.name(), requests.PriorityOf(ctx).String(), code).Inc()
	if err != nil {
		if noConnection(err) {
			return unsent, err
		}
		return lost, err
	}
	defer resp.Body.Close()
	return read(resp, into)
}
