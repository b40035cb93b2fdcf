package hetzner

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/internal/cloud"
	"github.com/underlay-ccm/underlay/lb"
	"github.com/underlay-ccm/underlay/routes"
)

// What follows is for people who look at the project: more than the controllers
// need to know, always from the API itself, and nothing but GET requests.

// SeenServer is a server with what only people want to know of it.
type SeenServer struct {
	cloud.Server
	Status  string // running, off, initializing, …
	Created time.Time
	Labels  map[string]string
}

// SeenNetwork is a network and what is in it.
type SeenNetwork struct {
	*Network
	Created time.Time
	Routes  []routes.Route // all, in the order of the API
	// Servers and LoadBalancers are how many are attached.
	Servers, LoadBalancers int
}

// SeenLoadBalancer is a load balancer and how each of its targets fares.
type SeenLoadBalancer struct {
	lb.State
	Created time.Time
	// Statuses are healthy, unhealthy or unknown, by the listener's port.
	Statuses map[lb.Target]map[int]string
}

// SeenAction is a change of one resource.
type SeenAction struct {
	ID                int64
	Kind              string // server or load_balancer
	Resource          int64
	Command, Status   string
	Started, Finished time.Time // Finished is zero while it runs
	Error             string    // empty unless Status is error
}

// LookAtServers returns all servers by ID, with their addresses in the network;
// 0 means that private addresses don't matter.
func (c *Client) LookAtServers(ctx context.Context, network int64) ([]SeenServer, error) {
	var found []*hcloud.Server
	err := retry(ctx, read, func(ctx context.Context) error {
		var err error
		found, err = c.allServers(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing servers: %w", err)
	}
	view := c.Servers(network)
	all := make([]SeenServer, len(found))
	for i, s := range found {
		all[i] = SeenServer{Server: view.convert(s), Status: string(s.Status), Created: s.Created, Labels: s.Labels}
	}
	return all, nil
}

// LookAtNetwork finds a network by its ID or its name. The error wraps
// ErrNoNetwork if there is none.
func (c *Client) LookAtNetwork(ctx context.Context, idOrName string) (SeenNetwork, error) {
	var found *hcloud.Network
	err := retry(ctx, read, func(ctx context.Context) error {
		var err error
		found, _, err = c.api.Network.Get(ctx, idOrName)
		return err
	})
	switch {
	case err != nil:
		return SeenNetwork{}, fmt.Errorf("getting network %q: %w", idOrName, err)
	case found == nil:
		return SeenNetwork{}, fmt.Errorf("network %q: %w", idOrName, ErrNoNetwork)
	}
	return SeenNetwork{
		Network: c.network(found), Created: found.Created, Routes: convertRoutes(found.Routes),
		Servers: len(found.Servers), LoadBalancers: len(found.LoadBalancers),
	}, nil
}

// LookAtLoadBalancers returns all load balancers, whoever's, by ID.
func (c *Client) LookAtLoadBalancers(ctx context.Context) ([]SeenLoadBalancer, error) {
	var found []*hcloud.LoadBalancer
	err := retry(ctx, read, func(ctx context.Context) error {
		var err error
		found, err = c.api.LoadBalancer.AllWithOpts(ctx, hcloud.LoadBalancerListOpts{
			ListOpts: hcloud.ListOpts{PerPage: 50}, Sort: []string{"id:asc"},
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing load balancers: %w", err)
	}
	all := make([]SeenLoadBalancer, len(found))
	for i, b := range found {
		all[i] = SeenLoadBalancer{State: balancerState(b), Created: b.Created, Statuses: statuses(b)}
	}
	return all, nil
}

// statuses are what the checks say of each server.
func statuses(b *hcloud.LoadBalancer) map[lb.Target]map[int]string {
	out := map[lb.Target]map[int]string{}
	for _, t := range b.Targets {
		if t.Type != hcloud.LoadBalancerTargetTypeServer || t.Server == nil || t.Server.Server == nil {
			continue
		}
		byPort := make(map[int]string, len(t.HealthStatus))
		for _, s := range t.HealthStatus {
			byPort[s.ListenPort] = string(s.Status)
		}
		out[lb.Target{Server: t.Server.Server.ID, Private: t.UsePrivateIP}] = byPort
	}
	return out
}

// SeenActions are the newest changes of one resource.
type SeenActions struct {
	Newest []SeenAction // oldest first
	// Older is how many more there are, which nobody asked for.
	Older int
}

// LookAtServerActions returns what the API remembers of the newest changes of a
// server. It is one request.
func (c *Client) LookAtServerActions(ctx context.Context, id int64) (SeenActions, error) {
	return lookAtActions(ctx, "server", id, func(ctx context.Context, o hcloud.ActionListOpts) ([]*hcloud.Action, *hcloud.Response, error) {
		return c.api.Server.Action.ListFor(ctx, &hcloud.Server{ID: id}, o)
	})
}

// LookAtLoadBalancerActions returns the same of a load balancer.
func (c *Client) LookAtLoadBalancerActions(ctx context.Context, id int64) (SeenActions, error) {
	return lookAtActions(ctx, "load_balancer", id, func(ctx context.Context, o hcloud.ActionListOpts) ([]*hcloud.Action, *hcloud.Response, error) {
		return c.api.LoadBalancer.Action.ListFor(ctx, &hcloud.LoadBalancer{ID: id}, o)
	})
}

func lookAtActions(ctx context.Context, kind string, id int64, page func(context.Context, hcloud.ActionListOpts) ([]*hcloud.Action, *hcloud.Response, error)) (SeenActions, error) {
	var found []*hcloud.Action
	var total int
	err := retry(ctx, read, func(ctx context.Context) error {
		newest, resp, err := page(ctx, hcloud.ActionListOpts{ListOpts: hcloud.ListOpts{PerPage: 50}, Sort: []string{"id:desc"}})
		if err != nil {
			return err
		}
		found, total = newest, len(newest)
		if p := resp.Meta.Pagination; p != nil {
			total = p.TotalEntries
		}
		return nil
	})
	if err != nil {
		return SeenActions{}, fmt.Errorf("listing actions of %s %d: %w", strings.ReplaceAll(kind, "_", " "), id, err)
	}
	seen := SeenActions{Newest: make([]SeenAction, len(found)), Older: total - len(found)}
	for i, a := range found {
		seen.Newest[i] = SeenAction{
			ID: a.ID, Kind: kind, Resource: id, Command: a.Command, Status: string(a.Status),
			Started: a.Started, Finished: a.Finished, Error: actionError(a),
		}
	}
	slices.SortFunc(seen.Newest, func(a, b SeenAction) int { return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.ID, b.ID)) })
	return seen, nil
}

// actionError is empty for an action that didn't fail.
func actionError(a *hcloud.Action) string {
	if a.Status != hcloud.ActionStatusError {
		return ""
	}
	return strings.TrimSpace(a.ErrorMessage + " (" + a.ErrorCode + ")")
}
