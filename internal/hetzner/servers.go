package hetzner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"golang.org/x/sync/singleflight"

	"github.com/underlay-ccm/underlay/internal/cloud"
	"github.com/underlay-ccm/underlay/internal/ipnet"
	"github.com/underlay-ccm/underlay/internal/requests"
)

// Servers caches the project's server list for all controllers.
type Servers struct {
	client *Client
	// network returns the network of the private addresses; 0 omits them.
	network func() int64
	maxAge  time.Duration

	flight singleflight.Group
	mu     sync.Mutex
	known  knowledge
	// ahead maps a time that was in the future when a caller named it to the time of that call.
	ahead map[time.Time]time.Time
}

const (
	// serversMaxAge is the maximum age of a list if no newer one is required: 12 lists an hour.
	serversMaxAge = 5 * time.Minute
	// serversStretchedAge replaces serversMaxAge while the budget is low.
	serversStretchedAge = 30 * time.Minute
	longestFlight       = 30 * time.Minute
)

// Servers returns a cached view of the servers and their addresses in network; 0 omits addresses.
func (c *Client) Servers(network int64) *Servers {
	return c.serversIn(func() int64 { return network })
}

func (c *Client) serversIn(network func() int64) *Servers {
	return &Servers{client: c, network: network, maxAge: serversMaxAge}
}

var _ cloud.Servers = (*Servers)(nil)

// List implements cloud.Servers. Callers that need the same refresh share it.
func (s *Servers) List(ctx context.Context, since time.Time) ([]cloud.Machine, error) {
	since = s.past(since, time.Now())
	done := func() bool { _, ok := s.cached(since); return ok }
	if err := s.share(ctx, "list", done, s.refresh); err != nil {
		return nil, err
	}
	if list, ok := s.cached(since); ok {
		return list, nil
	}
	// The local clock was set back during the refresh: no newer list is possible.
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known.list, nil
}

// Look implements cloud.Servers.
func (s *Servers) Look(ctx context.Context, questions []cloud.Question) ([]cloud.Machine, error) {
	s.mu.Lock()
	open, since := s.known.unanswered(questions)
	alone := s.known.cheaperAlone(len(open), time.Now())
	s.mu.Unlock()
	if _, ok := s.cached(time.Time{}); !ok || !alone {
		return s.List(ctx, since)
	}
	for _, q := range open {
		done := func() bool { return s.replied(q) }
		err := s.share(ctx, fmt.Sprintf("%d %q", q.ID, q.Name), done, func(ctx context.Context) error { return s.request(ctx, q) })
		switch {
		case errors.Is(err, errContradiction):
			return s.List(ctx, time.Now())
		case err != nil:
			return nil, err
		}
	}
	return s.List(ctx, time.Time{})
}

// share runs fly until done reports true; concurrent callers with the same key share a run. A
// caller may join a run that began too early, but not twice. While requests may wait for the
// budget, callers of different priorities don't share runs.
func (s *Servers) share(ctx context.Context, key string, done func() bool, fly func(context.Context) error) error {
	if !s.client.Spare() {
		key += " " + requests.PriorityOf(ctx).String()
	}
	for range 2 {
		if done() {
			return nil
		}
		flight := s.flight.DoChan(key, func() (any, error) {
			// Other callers share the response, so this caller's end must not end the run. Each
			// request has its own timeout; longestFlight bounds the wait for the budget.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), longestFlight)
			defer cancel()
			return nil, fly(ctx)
		})
		select {
		case <-ctx.Done():
			return fmt.Errorf("listing servers: %w", ctx.Err())
		case landed := <-flight:
			if landed.Err != nil {
				return landed.Err
			}
		}
	}
	return nil
}

// past returns since or, if that is in the future, when a caller first named it: by a clock that
// is ahead of the local one, the event has happened already. Without ahead, every call would
// refresh the list until the local clock has caught up.
func (s *Servers) past(since, now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Only the key drops the monotonic reading: since itself is compared by it, so that a list
	// from before the clock was set back doesn't count as newer.
	named := since.Round(0).UTC()
	if first, ok := s.ahead[named]; ok {
		return first
	}
	if !since.After(now) {
		return since
	}
	// After serversStretchedAge, no caller needs the entry: every cached list is newer.
	maps.DeleteFunc(s.ahead, func(named, _ time.Time) bool { return named.Before(now.Add(-serversStretchedAge)) })
	if s.ahead == nil {
		s.ahead = map[time.Time]time.Time{}
	}
	s.ahead[named] = now
	return now
}

func (s *Servers) cached(since time.Time) ([]cloud.Machine, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known.requested.IsZero() || s.known.requested.Before(since) || s.known.network != s.network() {
		return nil, false
	}
	age := time.Since(s.known.requested)
	return s.known.list, age < s.maxAge || age < serversStretchedAge && !s.client.Spare()
}

func (s *Servers) replied(q cloud.Question) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	open, _ := s.known.unanswered([]cloud.Question{q})
	return len(open) == 0
}

func (s *Servers) refresh(ctx context.Context) error {
	requested, network := time.Now(), s.network()
	found, err := s.client.servers(ctx, "servers", hcloud.ServerListOpts{})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known.listed(convertAll(found, network), network, requested)
	s.client.listed.Set(float64(requested.Unix()))
	return nil
}

func (s *Servers) request(ctx context.Context, q cloud.Question) error {
	requested, network := time.Now(), s.network()
	var found []*hcloud.Server
	var one *hcloud.Server
	var err error
	if q.ID == 0 {
		found, err = s.client.servers(ctx, "servers of this name", hcloud.ServerListOpts{Name: q.Name})
	} else if one, err = s.client.server(ctx, q.ID); one != nil {
		found = []*hcloud.Server{one}
	}
	if err != nil {
		return fmt.Errorf("getting server %s: %w", q, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.known.learn(q, convertAll(found, network), network, requested) {
		return errContradiction
	}
	return nil
}

// errContradiction means that a response about a single server contradicts the list.
var errContradiction = errors.New("the server list is out of date")

// Get implements cloud.Servers. It always requests the server from the API.
func (s *Servers) Get(ctx context.Context, id int64) (cloud.Machine, error) {
	requested, network := time.Now(), s.network()
	found, err := s.client.server(ctx, id)
	if err != nil {
		return cloud.Machine{}, fmt.Errorf("getting server %d: %w", id, err)
	}
	if found == nil {
		return cloud.Machine{}, fmt.Errorf("getting server %d: %w", id, cloud.ErrNoServer)
	}
	server := convert(found, network)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known.learn(cloud.Question{ID: id}, []cloud.Machine{server}, network, requested)
	return server, nil
}

func (c *Client) servers(ctx context.Context, what string, o hcloud.ServerListOpts) ([]*hcloud.Server, error) {
	o.Sort = byID()
	return list(ctx, c, what, func(s *hcloud.Server) int64 { return s.ID },
		func(ctx context.Context, page hcloud.ListOpts) ([]*hcloud.Server, *hcloud.Response, error) {
			o.ListOpts = page
			return c.api.Server.List(ctx, o)
		})
}

// server returns nil if the server doesn't exist.
func (c *Client) server(ctx context.Context, id int64) (*hcloud.Server, error) {
	return get(ctx, func(ctx context.Context) (*hcloud.Server, *hcloud.Response, error) {
		return c.api.Server.GetByID(ctx, id)
	})
}

func convertAll(servers []*hcloud.Server, network int64) []cloud.Machine {
	list := make([]cloud.Machine, len(servers))
	for i, server := range servers {
		list[i] = convert(server, network)
	}
	return list
}

func convert(server *hcloud.Server, network int64) cloud.Machine {
	out := cloud.Machine{
		ID:      server.ID,
		Name:    server.Name,
		Status:  string(server.Status),
		Off:     server.Status == hcloud.ServerStatusOff,
		Created: server.Created,
	}
	if server.ServerType != nil {
		out.Type = server.ServerType.Name
	}
	if server.Location != nil {
		out.Region = server.Location.Name
	}
	if !server.PublicNet.IPv4.IsUnspecified() {
		out.PublicIPv4 = ipnet.Addr(server.PublicNet.IPv4.IP)
	}
	if !server.PublicNet.IPv6.IsUnspecified() {
		out.PublicIPv6 = ipnet.Prefix(server.PublicNet.IPv6.Network)
	}
	for _, private := range server.PrivateNet {
		if private.Network == nil || private.Network.ID != network {
			continue
		}
		out.PrivateIP = ipnet.Addr(private.IP)
		for _, alias := range private.Aliases {
			out.AliasIPs = append(out.AliasIPs, ipnet.Addr(alias))
		}
	}
	return out
}
