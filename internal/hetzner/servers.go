package hetzner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"golang.org/x/sync/singleflight"

	"github.com/underlay-ccm/underlay/internal/cloud"
)

// Servers is the project's server list, cached and shared by all controllers.
type Servers struct {
	client  *Client
	network int64 // 0: none; private addresses are those in this network
	maxAge  time.Duration

	flight singleflight.Group
	mu     sync.Mutex
	list   []cloud.Server
	asked  time.Time // when the request for list was sent
	// ahead are the moments that callers named and that lay in the future then,
	// with the time at which they were first named.
	ahead map[time.Time]time.Time
}

const (
	// serversMaxAge is how old the list may be for those who don't ask for a
	// newer one: 12 lists an hour.
	serversMaxAge = 5 * time.Minute
	// serversStretchedAge is how old it may grow while the budget is low.
	serversStretchedAge = 30 * time.Minute
	longestFlight       = 30 * time.Minute
)

// Servers returns a cached view of the project's servers with their addresses
// in network; 0 means that private addresses don't matter.
func (c *Client) Servers(network int64) *Servers {
	return &Servers{client: c, network: network, maxAge: serversMaxAge}
}

var _ cloud.Servers = (*Servers)(nil)

// List implements cloud.Servers. Callers that need the same refresh share one.
func (s *Servers) List(ctx context.Context, since time.Time) ([]cloud.Server, error) {
	// A request may join a flight that set off before since; the second flight
	// can't have.
	since = s.past(since, time.Now())
	for range 2 {
		if list, ok := s.cached(since); ok {
			return list, nil
		}
		flight := s.flight.DoChan("list", func() (any, error) {
			// Others wait for the same list: one caller's end isn't theirs. Each
			// request has its own limit; this is for waiting for the budget.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), longestFlight)
			defer cancel()
			return nil, s.refresh(ctx)
		})
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("listing servers: %w", ctx.Err())
		case landed := <-flight:
			if landed.Err != nil {
				return nil, landed.Err
			}
		}
	}
	if list, ok := s.cached(since); ok {
		return list, nil
	}
	// Our clock was set back meanwhile: this is as new as it gets.
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list, nil
}

// past returns since, or where it lies in the future the time at which it was
// named first. Another clock told it, one that is ahead of ours, and what it told
// of had happened by then. Without that memory, every call would take a new list
// until our clock has caught up.
func (s *Servers) past(since, now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	since = since.Round(0).UTC()
	if first, ok := s.ahead[since]; ok {
		return first
	}
	if !since.After(now) {
		return since
	}
	// Kept until nobody cares how new a list is that old.
	maps.DeleteFunc(s.ahead, func(named, _ time.Time) bool { return named.Before(now.Add(-serversStretchedAge)) })
	if s.ahead == nil {
		s.ahead = map[time.Time]time.Time{}
	}
	s.ahead[since] = now
	return now
}

func (s *Servers) cached(since time.Time) ([]cloud.Server, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked.IsZero() || s.asked.Before(since) {
		return nil, false
	}
	age := time.Since(s.asked)
	return s.list, age < s.maxAge || age < serversStretchedAge && !s.client.Spare()
}

func (s *Servers) refresh(ctx context.Context) error {
	asked := time.Now()
	var found []*hcloud.Server
	err := retry(ctx, read, func(ctx context.Context) error {
		var err error
		found, err = s.client.allServers(ctx)
		return err
	})
	if err != nil {
		return fmt.Errorf("listing servers: %w", err)
	}
	list := make([]cloud.Server, len(found))
	for i, server := range found {
		list[i] = s.convert(server)
	}
	slices.SortFunc(list, func(a, b cloud.Server) int { return cmp.Compare(a.ID, b.ID) })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list, s.asked = list, asked
	s.client.listed.Set(float64(asked.Unix()))
	return nil
}

// errShifted says that the list changed while its pages were read.
var errShifted = errors.New("the server list changed between two pages")

// allServers reads every page. Pages are counted from the start of the list, so
// a server that is deleted meanwhile moves others from a page not yet read to
// one already read. The totals betray that, unless another server was created
// at the same time, which its age betrays; then the list is read again.
func (c *Client) allServers(ctx context.Context) ([]*hcloud.Server, error) {
	const pageSize = 50 // the API's maximum
	var all []*hcloud.Server
	began, total := time.Now(), -1
	for page := 1; page != 0; {
		servers, resp, err := c.api.Server.List(ctx, hcloud.ServerListOpts{
			ListOpts: hcloud.ListOpts{Page: page, PerPage: pageSize},
			Sort:     []string{"id:asc"},
		})
		if err != nil {
			return nil, err
		}
		if told, err := http.ParseTime(resp.Header.Get("Date")); err == nil && len(all) == 0 {
			began = told // by the clock that servers' ages are told by
		}
		all = append(all, servers...)
		page = 0
		if p := resp.Meta.Pagination; p != nil {
			if total >= 0 && p.TotalEntries != total {
				return nil, errShifted
			}
			total, page = p.TotalEntries, p.NextPage
		}
	}
	if total >= 0 && len(all) != total || len(all) > pageSize && newerThan(all, began) {
		return nil, errShifted
	}
	return all, nil
}

// newerThan says whether a server may have been created since. Times are in
// whole seconds.
func newerThan(servers []*hcloud.Server, since time.Time) bool {
	return slices.ContainsFunc(servers, func(s *hcloud.Server) bool { return !s.Created.Before(since.Add(-time.Second)) })
}

// Get implements cloud.Servers: one server, from the API itself.
func (s *Servers) Get(ctx context.Context, id int64) (cloud.Server, error) {
	var found *hcloud.Server
	err := retry(ctx, read, func(ctx context.Context) error {
		var err error
		found, _, err = s.client.api.Server.GetByID(ctx, id)
		return err
	})
	if err != nil {
		return cloud.Server{}, fmt.Errorf("getting server %d: %w", id, err)
	}
	if found == nil {
		return cloud.Server{}, fmt.Errorf("getting server %d: %w", id, cloud.ErrNoServer)
	}
	return s.convert(found), nil
}

func (s *Servers) convert(server *hcloud.Server) cloud.Server {
	out := cloud.Server{
		ID:   server.ID,
		Name: server.Name,
		Off:  server.Status == hcloud.ServerStatusOff,
	}
	if server.ServerType != nil {
		out.Type = server.ServerType.Name
	}
	if server.Location != nil {
		out.Location = server.Location.Name
	}
	if !server.PublicNet.IPv4.IsUnspecified() {
		out.PublicIPv4 = addr(server.PublicNet.IPv4.IP)
	}
	if !server.PublicNet.IPv6.IsUnspecified() {
		out.PublicIPv6 = prefix(server.PublicNet.IPv6.Network)
	}
	for _, private := range server.PrivateNet {
		if private.Network == nil || private.Network.ID != s.network {
			continue
		}
		out.PrivateIP = addr(private.IP)
		for _, alias := range private.Aliases {
			out.AliasIPs = append(out.AliasIPs, addr(alias))
		}
	}
	return out
}
