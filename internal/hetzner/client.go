// Package hetzner is the client of the Hetzner Cloud API: the only importer of hcloud-go, with
// one Client for all controllers, so that the project's request budget has one owner.
//
// It implements the ports of other packages: cloud.Servers with a cached server list,
// routes.Table with a network's routes, lb.Backend with load balancers. It must never return
// part of a list as the whole, never repeat a write with an unknown outcome (the caller reads
// first), and never leak the token.
//
// Facts: a project has 3,600 requests an hour; a network and a load balancer accept one change
// at a time, and the API answers `locked` or `conflict` to further ones; list pages hold at most
// 50 objects (Hetzner Cloud API documentation).
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

	"github.com/underlay-ccm/underlay/internal/promauto"
	"github.com/underlay-ccm/underlay/internal/requests"
)

// Options configures a Client.
type Options struct {
	// Endpoint is the API's URL including its version path.
	Endpoint string
	// Token is called for every request, so that a rotated token is used without a restart.
	Token func() (string, error)
	// Application and Version are sent in the User-Agent; Application defaults to underlay-ccm.
	Application, Version string

	Registry promauto.Registry
	// Transport sends the requests; nil means requests.NewTransport.
	Transport http.RoundTripper
}

// Client sends all of the project's requests to the API.
type Client struct {
	api     *hcloud.Client
	actions *waiter
	budget  *budget
	listed  *metrics.Gauge
	// lastPages holds the last page of each list with several pages, see list.
	lastPages sync.Map
	// writers holds the writer of each network by its ID, shared by all lookups of the network.
	writers sync.Map
}

func (c *Client) writerOf(network int64) writer {
	w, _ := c.writers.LoadOrStore(network, newWriter())
	return w.(writer)
}

// requestTimeout bounds one request; the API responds within seconds.
const requestTimeout = 30 * time.Second

// New returns a client. It sends no request.
func New(o Options) (*Client, error) {
	base, err := url.Parse(o.Endpoint)
	if err != nil || base.Scheme == "" || base.Host == "" {
		return nil,
			fmt.Errorf("endpoint %q is not a URL such as https://api.hetzner.cloud/v1", o.Endpoint)
	}
	f := promauto.With(o.Registry, "cloud_requests")
	sent := f.CounterVec("total",
		"Number of requests sent to the cloud's API by operation (such as `POST /networks/{id}/actions/add_route`), priority (urgent, normal, background) and code (the HTTP status, or `unanswered`).",
		"operation", "priority", "code")
	listed := f.Gauge("server_list_timestamp_seconds",
		"Unix time at which the cached server list was requested; the time since then is the cache's age. 0 before the first.")
	budget := newBudget(f)
	if err := f.Err(); err != nil {
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
			// A redirect would send the token to another host.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			// From the inside out: a request gets the token and a timeout, is counted, and waits
			// for the budget, which the timeout excludes.
			Transport: &budgeted{budget: budget, next: &matched{&counted{
				below: base.Path, requests: sent,
				next: &authorized{next: next, token: o.Token, limit: requestTimeout},
			}}},
		}),
		// This package retries, since it depends on the request whether it may be repeated.
		hcloud.WithRetryOpts(hcloud.RetryOpts{MaxRetries: 0}),
	)
	return &Client{api: api, actions: newWaiter(&api.Action), budget: budget, listed: listed}, nil
}

// Spare reports whether the budget has room for background work, such as a periodic read.
// Requests that are sent regardless are delayed.
func (c *Client) Spare() bool { return c.budget.spare() }

// Unauthorized reports whether the API refused the token.
func Unauthorized(err error) bool {
	return hcloud.IsError(err, hcloud.ErrorCodeUnauthorized) || hasStatus(err, http.StatusUnauthorized)
}

// NotFound reports whether the API, or another server in its place, replied 404.
func NotFound(err error) bool {
	return hcloud.IsError(err, hcloud.ErrorCodeNotFound) || hasStatus(err, http.StatusNotFound)
}

func hasStatus(err error, status int) bool {
	var other *notTheAPI
	return errors.As(err, &other) && other.status == status
}
