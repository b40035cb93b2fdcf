package hetzner

import (
	"context"
	"errors"
	"fmt"
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

	flight singleflight.Group
	mu     sync.Mutex
	known  knowledge
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
	return &Servers{client: c, network: func() int64 { return network }}
}

var _ cloud.Servers = (*Servers)(nil)

// List implements cloud.Servers. Callers that need the same refresh share it.
func (s *Servers) List(ctx context.Context, since time.Time) ([]cloud.Machine, error) {
	if now := time.Now(); since.After(now) {
		since = now
	}
	if err := s.share(ctx, "list", func() bool { return s.cached(since) }, s.refresh); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known.list, nil
}

// Look implements cloud.Servers.
func (s *Servers) Look(ctx context.Context, questions []cloud.Question) ([]cloud.Machine, error) {
	open, since := s.unanswered(questions)
	s.mu.Lock()
	alone := s.known.cheaperAlone(len(open), time.Now())
	s.mu.Unlock()
	if !alone || !s.cached(time.Time{}) {
		return s.List(ctx, since)
	}
	for _, q := range open {
		answered := func() bool { still, _ := s.unanswered([]cloud.Question{q}); return len(still) == 0 }
		request := func(ctx context.Context) error { _, err := s.request(ctx, q); return err }
		switch err := s.share(ctx, q.String(), answered, request); {
		case errors.Is(err, errContradiction):
			return s.List(ctx, time.Now())
		case err != nil:
			return nil, err
		}
	}
	// An older list may have landed in the meantime, without the responses.
	_, since = s.unanswered(questions)
	return s.List(ctx, since)
}

func (s *Servers) unanswered(questions []cloud.Question) ([]cloud.Question, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known.unanswered(questions)
}

// share runs fly until done reports true; concurrent callers with the same key share a run. A
// caller may join a run that began too early, but not twice. While requests may wait for the
// budget, callers of different priorities don't share runs.
func (s *Servers) share(
	ctx context.Context, key string, done func() bool, fly func(context.Context) error,
) error {
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

func (s *Servers) cached(since time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	requested := s.known.requested
	if requested.IsZero() || requested.Before(since) || s.known.network != s.network() {
		return false
	}
	age := time.Since(requested)
	return age < serversMaxAge || age < serversStretchedAge && !s.client.Spare()
}

func (s *Servers) refresh(ctx context.Context) error {
	requested, network := time.Now(), s.network()
	found, err := s.list(ctx, "servers", hcloud.ServerListOpts{}, network)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known.listed(found, network, requested)
	s.client.listed.Set(float64(requested.Unix()))
	return nil
}

// request returns the servers with the ID or the name, and an error that wraps errContradiction
// beside them if only a new list can show the others' state.
func (s *Servers) request(
	ctx context.Context, q cloud.Question,
) (found []cloud.Machine, err error) {
	requested, network := time.Now(), s.network()
	if q.ID == 0 {
		opts := hcloud.ServerListOpts{Name: q.Name}
		found, err = s.list(ctx, "servers of this name", opts, network)
	} else {
		var one *hcloud.Server
		one, err = get(ctx, s.client.api.Server.GetByID, q.ID)
		if one != nil {
			found = append(found, convert(one, network))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("getting server %s: %w", q, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.known.learn(q, found, network, requested) {
		err = errContradiction
	}
	return found, err
}

// errContradiction means that a response about a single server contradicts the list.
var errContradiction = errors.New("the server list is out of date")

// Get implements cloud.Servers. It always requests the server from the API.
func (s *Servers) Get(ctx context.Context, id int64) (cloud.Machine, error) {
	found, err := s.request(ctx, cloud.Question{ID: id})
	switch {
	case len(found) > 0:
		return found[0], nil
	case err == nil || errors.Is(err, errContradiction):
		err = fmt.Errorf("getting server %d: %w", id, cloud.ErrNoServer)
	}
	return cloud.Machine{}, err
}

func (s *Servers) list(
	ctx context.Context, what string, o hcloud.ServerListOpts, network int64,
) ([]cloud.Machine, error) {
	o.Sort = byID()
	return list(ctx, s.client, what, func(s *hcloud.Server) int64 { return s.ID },
		func(ctx context.Context, page hcloud.ListOpts) ([]*hcloud.Server, *hcloud.Response, error) {
			o.ListOpts = page
			return s.client.api.Server.List(ctx, o)
		},
		func(s *hcloud.Server) cloud.Machine { return convert(s, network) })
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
