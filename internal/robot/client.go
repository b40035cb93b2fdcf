package robot

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	// Application and Version go into the User-Agent; without the first it is
	// underlay-ccm.
	Application, Version string

	Registry Registry
	// Transport is the way to the web service; nil means http.DefaultTransport.
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
	// maxAnswer is more than a list of ten thousand servers needs.
	maxAnswer = 32 << 20
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
		next = http.DefaultTransport
	}
	c := &Client{
		endpoint: strings.TrimSuffix(endpoint, "/"),
		agent:    strings.TrimSuffix(cmp.Or(o.Application, "underlay-ccm")+"/"+o.Version, "/"),
		http: &http.Client{
			// A redirect would carry the password to whoever it names.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Transport:     next,
		},
		login: newLogin(o.Credentials), quotas: map[operation]*quota{},
	}
	return c, c.register(o)
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
	c.refused = metrics.NewGauge(gauge("credentials_refused", "1 while the Robot web service refuses the user and the password, which are not tried again before they change."))
	gone := metrics.NewGauge(gauge("unavailable", "1 while the Robot web service doesn't answer."))
	remaining := metrics.NewGaugeVec(gauge("remaining", "Number of requests of an operation (such as `GET /server`) that may still be sent within an hour; other programs of the account may leave fewer."), []string{"operation"})
	for _, m := range []metrics.Registerable{c.requests, c.waits, c.refused, gone, remaining} {
		if err := o.Registry.Register(m); err != nil {
			return fmt.Errorf("registering the Robot request metrics: %w", err)
		}
	}
	c.outage = &outage{tell: o.Availability, gone: gone}
	for _, op := range operations() {
		c.quotas[op] = newQuota(op.quota, remaining.WithLabelValues(op.name()))
	}
	return nil
}

// do asks for an operation and reads its answer. Whatever is held back or
// refused beforehand costs nothing.
func (c *Client) do(ctx context.Context, op operation, path string, form url.Values, into any) error {
	if err := c.outage.check(); err != nil {
		return err
	}
	began, q := time.Now(), c.quotas[op]
	waited := func() {
		c.waits.WithLabelValues(requests.PriorityOf(ctx).String()).Observe(time.Since(began).Seconds())
	}
	if err := q.spend(ctx); err != nil {
		waited()
		return err
	}
	credentials, done, err := c.login.enter(ctx)
	waited()
	if err != nil {
		q.told(false, nil)
		return err
	}
	if err := c.outage.check(); err != nil { // others have found out meanwhile
		done(false)
		q.told(false, nil)
		return err
	}
	err = c.send(ctx, op, path, form, credentials, into)
	var answer *Error
	errors.As(err, &answer)
	refused := answer != nil && answer.Status == http.StatusUnauthorized
	done(refused)
	q.told(true, answer)
	switch {
	case refused:
		c.outage.answered()
		c.refused.Set(1)
		return &CredentialsError{}
	case err == nil || answer != nil:
		c.outage.answered()
		c.refused.Set(0)
		return err
	case ctx.Err() != nil, errors.As(err, new(*badAnswer)):
		return err // the caller's wish or our reading, and no fault of the network's
	default:
		return c.outage.failed(err)
	}
}

// badAnswer is one that was received and makes no sense.
type badAnswer struct{ error }

// Unwrap returns what is wrong with it.
func (b *badAnswer) Unwrap() error { return b.error }

// send sends one request. An *Error is the service's answer, a *badAnswer one
// that can't be read; everything else means that the service doesn't answer.
func (c *Client) send(ctx context.Context, op operation, path string, form url.Values, credentials Credentials, into any) error {
	limit := requestTimeout
	if op == routeFailover || op == unrouteFailover {
		limit = routeTimeout
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r, err := http.NewRequestWithContext(limited, op.method, c.endpoint+path, strings.NewReader(form.Encode()))
	if err != nil {
		return &badAnswer{fmt.Errorf("building the request: %w", err)}
	}
	r.Header.Set("User-Agent", c.agent)
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	r.SetBasicAuth(credentials.reveal())
	resp, err := c.http.Do(r)
	code := "unanswered"
	if err == nil {
		code = strconv.Itoa(resp.StatusCode)
	}
	c.requests.WithLabelValues(op.name(), requests.PriorityOf(ctx).String(), code).Inc()
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return err
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		return failure(resp.StatusCode, body)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return &badAnswer{fmt.Errorf("reading the answer: %w", err)}
	}
	return nil
}

// failure reads an answer that isn't a success.
func failure(status int, body []byte) error {
	var envelope struct {
		Error *Error `json:"error"`
	}
	inFront := status == http.StatusBadGateway || status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout
	if !inFront && json.Unmarshal(body, &envelope) == nil && envelope.Error != nil && envelope.Error.Code != "" {
		envelope.Error.MaxRequests = cmp.Or(envelope.Error.MaxRequests, envelope.Error.MaxRequest)
		envelope.Error.Status = status
		return envelope.Error
	}
	other := &notTheService{status}
	switch {
	case status == http.StatusUnauthorized:
		return &Error{Status: status, Code: "UNAUTHORIZED", Message: http.StatusText(status)}
	case status == http.StatusNotFound || status < http.StatusBadRequest:
		return &badAnswer{fmt.Errorf("%w; is the endpoint right?", other)}
	default:
		return other
	}
}
