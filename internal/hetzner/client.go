// Package hetzner speaks to the Hetzner Cloud API for all of Underlay: it is
// the only importer of hcloud-go, and one Client serves every controller, so
// that the project's request budget has one owner.
//
// It implements the ports that others declare: cloud.Servers over a cached
// server list, routes.Table over a network's routes, lb.Backend over load
// balancers. It must never report part of a list as the whole, never repeat a
// write whose fate is unknown (the caller looks first), and never let the token
// out.
//
// Facts: a project has 3,600 requests an hour; a network and a load balancer
// take one change at a time and answer `locked` or `conflict` meanwhile; list
// pages hold at most 50 (Hetzner Cloud API documentation).
package hetzner

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/internal/requests"
)

// Registry takes metrics; component-base's registries are such.
type Registry interface {
	Register(metrics.Registerable) error
}

// Options are what a Client needs.
type Options struct {
	// Endpoint is the API's address including its version path.
	Endpoint string
	// Token is asked before every request, so that a rotated token is used
	// without a restart.
	Token func() (string, error)
	// Application and Version go into the User-Agent; without the first it is
	// underlay-ccm.
	Application, Version string

	Registry Registry
	// Transport is the way to the API; nil means that of requests.NewTransport.
	Transport http.RoundTripper
}

// Client is the project's one connection to the API.
type Client struct {
	api     *hcloud.Client
	actions *waiter
	budget  *budget
	listed  *metrics.Gauge
	// lastPages are the last pages of lists that have several, see list.
	lastPages sync.Map
	// writers is one for each network, by its ID, however often it is looked up.
	writers sync.Map
}

func (c *Client) writerOf(network int64) writer {
	w, _ := c.writers.LoadOrStore(network, newWriter())
	return w.(writer)
}

// requestTimeout bounds one request; the API answers within seconds.
const requestTimeout = 30 * time.Second

// New prepares a client. It sends nothing.
func New(o Options) (*Client, error) {
	base, err := url.Parse(o.Endpoint)
	if err != nil || base.Scheme == "" || base.Host == "" {
		return nil, fmt.Errorf("endpoint %q is not a URL such as https://api.hetzner.cloud/v1", o.Endpoint)
	}
	sent := metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "underlay", Subsystem: "cloud_requests", Name: "total",
		Help: "Number of requests sent to the cloud's API by operation (such as `POST /networks/{id}/actions/add_route`), priority (urgent, normal, background) and code (the HTTP status, or `unanswered`).",
	}, []string{"operation", "priority", "code"})
	listed := metrics.NewGauge(&metrics.GaugeOpts{
		Namespace: "underlay", Subsystem: "cloud_requests", Name: "server_list_timestamp_seconds",
		Help: "Unix time at which the cached server list was asked for; how long ago that is, is the cache's age. 0 before the first.",
	})
	for _, m := range []metrics.Registerable{sent, listed} {
		if err := o.Registry.Register(m); err != nil {
			return nil, fmt.Errorf("registering the cloud request metrics: %w", err)
		}
	}
	budget, err := newBudget(o.Registry)
	if err != nil {
		return nil, err
	}
	next := o.Transport
	if next == nil {
		next = requests.NewTransport()
	}
	api := hcloud.NewClient(
		hcloud.WithEndpoint(o.Endpoint),
		hcloud.WithApplication(cmp.Or(o.Application, "underlay-ccm"), o.Version),
		hcloud.WithHTTPClient(&http.Client{
			// A redirect would carry the token to whoever it names.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			// From the inside out: a request has the token, a time limit, is
			// counted, and waits for the budget, which no time limit cuts short.
			// Only a request whose token was replaced passes twice.
			Transport: &reauthorized{token: o.Token, next: &budgeted{
				budget: budget,
				next: &matched{&counted{
					below: base.Path, requests: sent,
					next: &limited{next: &authorized{next: next, token: o.Token}, limit: requestTimeout},
				}},
			}},
		}),
		// Retrying is ours: what may be repeated depends on what was asked.
		hcloud.WithRetryOpts(hcloud.RetryOpts{MaxRetries: 0}),
	)
	return &Client{api: api, actions: newWaiter(&api.Action), budget: budget, listed: listed}, nil
}

// Spare reports whether the budget has room for work that could as well be done
// later. Whoever looks only because time has passed may ask, and skip a look;
// requests that are sent nevertheless are held back by themselves.
func (c *Client) Spare() bool { return c.budget.spare() }

// Unauthorized reports whether the API refused the token.
func Unauthorized(err error) bool {
	return hcloud.IsError(err, hcloud.ErrorCodeUnauthorized) || answeredBy(err, http.StatusUnauthorized)
}

// NotFound reports whether the API has nothing at the address that was asked, or
// what answers there is not the API.
func NotFound(err error) bool {
	return hcloud.IsError(err, hcloud.ErrorCodeNotFound) || answeredBy(err, http.StatusNotFound)
}

func answeredBy(err error, status int) bool {
	var other *notTheAPI
	return errors.As(err, &other) && other.status == status
}
