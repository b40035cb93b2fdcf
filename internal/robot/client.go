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

	"github.com/underlay-ccm/underlay/internal/requests"
)

// DefaultEndpoint is where the web service is.
const DefaultEndpoint = "https://robot-ws.your-server.de"

// Registry takes metrics; component-base's registries are such.
type Registry interface {
	Register(metrics.Registerable) error
	CustomRegister(metrics.StableCollector) error
}

// Options are what a Client needs.
type Options struct {
	// Endpoint is the web service's address; empty means DefaultEndpoint.
	Endpoint string
	// Credentials is asked before every request, so that new ones are used
	// without a restart, see CredentialFiles.
	Credentials func() (Credentials, error)
	// Availability, if set, is told once when the web service stops answering,
	// with an *Unavailable, and once with nil when it answers again. It must not
	// call the Client.
	Availability func(error)
	// Version goes into the User-Agent.
	Version string

	Registry Registry
	// Transport is the way to the web service; nil means that of NewTransport.
	// It must not repeat requests by itself.
	Transport http.RoundTripper
}

// Client is the account's one connection to the web service.
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
	// requestTimeout bounds one request; the service answers within seconds.
	requestTimeout = 30 * time.Second
	// routeTimeout bounds one that routes a failover address, which takes a minute.
	routeTimeout = 3 * time.Minute
)

// New prepares a client. It sends nothing.
func New(o Options) (*Client, error) {
	endpoint := cmp.Or(o.Endpoint, DefaultEndpoint)
	base, err := url.Parse(endpoint)
	if err != nil || base.Scheme == "" || base.Host == "" {
		return nil, fmt.Errorf("endpoint %q is not a URL such as %s", endpoint, DefaultEndpoint)
	}
	if o.Availability == nil {
		o.Availability = func(error) {}
	}
	next := o.Transport
	if next == nil {
		next = NewTransport()
	}
	c := &Client{
		endpoint: strings.TrimSuffix(endpoint, "/"),
		agent:    strings.TrimSuffix("underlay-ccm/"+o.Version, "/"),
		http: &http.Client{
			// A redirect would carry the password to whoever it names.
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

// NewTransport returns one that uses each connection once. On a kept one that the
// server has closed, net/http repeats a request by itself: the first may have
// reached the service, and would be another failed login that nobody counts.
func NewTransport() http.RoundTripper {
	t := requests.NewTransport()
	t.DisableKeepAlives = true
	return t
}

func (c *Client) register(o Options) error {
	counter := func(name, help string, labels ...string) *metrics.CounterVec {
		return metrics.NewCounterVec(&metrics.CounterOpts{Namespace: "underlay", Subsystem: "robot_requests", Name: name, Help: help}, labels)
	}
	gauge := func(name, help string) *metrics.GaugeOpts {
		return &metrics.GaugeOpts{Namespace: "underlay", Subsystem: "robot_requests", Name: name, Help: help}
	}
	c.requests = counter("total", "Number of requests sent to the Robot web service by operation (such as `GET /server`), priority (urgent, normal, background) and code (the HTTP status, or `unanswered`).",
		"operation", "priority", "code")
	c.waits = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace: "underlay", Subsystem: "robot_requests", Name: "wait_seconds",
		Help:    "Seconds that requests were held back for their operation's quota or another request's login, until they were sent or given up, by priority (urgent, normal, background).",
		Buckets: []float64{0.01, 1, 10, 60, 300, 900},
	}, []string{"priority"})
	c.refused = metrics.NewGauge(gauge("credentials_refused", "1 while the Robot web service refuses the user and the password, which are not tried again before they change or an hour has passed."))
	gone := metrics.NewGauge(gauge("unavailable", "1 while the Robot web service doesn't answer."))
	c.outage = &outage{tell: o.Availability, gone: gone}
	err := o.Registry.CustomRegister(newRemaining(c.quotas))
	for _, m := range []metrics.Registerable{c.requests, c.waits, c.refused, gone} {
		err = errors.Join(err, o.Registry.Register(m))
	}
	if err != nil {
		return fmt.Errorf("registering the Robot request metrics: %w", err)
	}
	return nil
}

// do asks for an operation and reads its answer. Whatever is held back or
// refused beforehand costs nothing.
func (c *Client) do(ctx context.Context, op operation, path string, form url.Values, into any) error {
	t, probe, err := c.hold(ctx, op)
	if err != nil {
		return err
	}
	if probe {
		defer c.outage.probed()
	}
	began := time.Now()
	told, err := c.send(ctx, op, path, form, t.credentials, into)
	t.end(told)
	var answer *Error
	errors.As(err, &answer)
	c.quotas[op].told(true, answer)
	switch {
	case told == refused:
		c.outage.answered()
		c.refused.Set(1)
		return &CredentialsError{Until: time.Now().Add(refusedFor)}
	case told == accepted:
		c.refused.Set(0)
	}
	switch {
	case err == nil || answer != nil:
		c.outage.answered()
		return err
	case errors.As(err, new(*badAnswer)):
		return err // our reading, and no fault of the network's
	case ctx.Err() != nil && !tooSlow(ctx, op, time.Since(began)):
		return err // the caller's wish
	default:
		return c.outage.failed(err)
	}
}

// hold returns when an operation may be asked for, with its turn to log in, and whether it probes
// an outage.
func (c *Client) hold(ctx context.Context, op operation) (t *turn, probe bool, err error) {
	if err := c.outage.check(); err != nil {
		return nil, false, err
	}
	began, q := time.Now(), c.quotas[op]
	err = q.spend(ctx)
	if err == nil {
		if t, err = c.login.enter(ctx); err != nil {
			q.told(false, nil)
		}
	}
	c.waits.WithLabelValues(requests.PriorityOf(ctx).String()).Observe(time.Since(began).Seconds())
	if err != nil {
		return nil, false, err
	}
	if probe, err = c.outage.admit(); err != nil { // others have found out meanwhile
		t.end(untold)
		q.told(false, nil)
		return nil, false, err
	}
	return t, probe, nil
}

// send sends one request, and says what its end tells of the login. An *Error is
// the service's answer, a *badAnswer one that can't be read; everything else
// means that the service doesn't answer.
func (c *Client) send(ctx context.Context, op operation, path string, form url.Values, credentials Credentials, into any) (outcome, error) {
	limit := requestTimeout
	if op.routes() {
		limit = routeTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ctx, reached := traced(ctx)
	r, err := http.NewRequestWithContext(ctx, op.method, c.endpoint+path, strings.NewReader(form.Encode()))
	if err != nil {
		return untold, &badAnswer{fmt.Errorf("building the request: %w", err)}
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
		if !reached(err) {
			return untold, err
		}
		return lost, err
	}
	defer resp.Body.Close()
	return read(resp, into)
}
