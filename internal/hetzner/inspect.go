package hetzner

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/routes"
)

// The types and methods of this file are for tools that inspect a project: they return more than
// the controllers need, always read from the API, and send only GET requests.

// NetworkDetails describes a network and its contents.
type NetworkDetails struct {
	ID              int64
	Name            string
	IPRange         netip.Prefix
	Subnets         []netip.Prefix
	DedicatedRanges []netip.Prefix
	Coupling        routes.Coupling
	// Routes are all routes, of any owner, in the API's order.
	Routes []routes.Route
	// Servers and LoadBalancers count the attached resources.
	Servers, LoadBalancers int
}

// Action is a change of one resource.
type Action struct {
	ID   int64
	Kind string // server or load_balancer
	// Command is the API's name of the action, such as attach_to_network.
	Command           string
	Status            string    // running, success or error
	Started, Finished time.Time // Finished is zero while it runs
	Error             string    // empty unless Status is error
}

// InspectNetwork looks up a network by ID or name. The error wraps ErrNoNetwork if it is missing.
func (c *Client) InspectNetwork(ctx context.Context, idOrName string) (NetworkDetails, error) {
	found, err := c.findNetwork(ctx, idOrName)
	if err != nil {
		return NetworkDetails{}, err
	}
	n := c.network(found)
	return NetworkDetails{
		ID: n.ID, Name: n.Name, IPRange: n.IPRange, Subnets: n.Subnets, DedicatedRanges: n.DedicatedRanges(), Coupling: n.Coupling, Routes: convertRoutes(found.Routes),
		Servers: len(found.Servers), LoadBalancers: len(found.LoadBalancers),
	}, nil
}

// ServerActions returns the newest 50 actions of a server, oldest first, and how many are older.
// It is one request.
func (c *Client) ServerActions(ctx context.Context, id int64) (newest []Action, older int, err error) {
	return actions(ctx, "server", id, func(ctx context.Context, o hcloud.ActionListOpts) ([]*hcloud.Action, *hcloud.Response, error) {
		return c.api.Server.Action.ListFor(ctx, &hcloud.Server{ID: id}, o)
	})
}

// LoadBalancerActions is ServerActions for a load balancer.
func (c *Client) LoadBalancerActions(ctx context.Context, id int64) (newest []Action, older int, err error) {
	return actions(ctx, "load_balancer", id, func(ctx context.Context, o hcloud.ActionListOpts) ([]*hcloud.Action, *hcloud.Response, error) {
		return c.api.LoadBalancer.Action.ListFor(ctx, &hcloud.LoadBalancer{ID: id}, o)
	})
}

type actionPage func(context.Context, hcloud.ActionListOpts) ([]*hcloud.Action, *hcloud.Response, error)

func actions(ctx context.Context, kind string, id int64, page actionPage) (newest []Action, older int, err error) {
	err = retry(ctx, read, func(ctx context.Context) error {
		found, resp, err := page(ctx, hcloud.ActionListOpts{ListOpts: hcloud.ListOpts{PerPage: 50}, Sort: []string{"id:desc"}})
		if err != nil {
			return err
		}
		newest, older = make([]Action, len(found)), 0
		if p := resp.Meta.Pagination; p != nil {
			older = p.TotalEntries - len(found)
		}
		for i, a := range found {
			newest[i] = Action{
				ID: a.ID, Kind: kind, Command: a.Command, Status: string(a.Status),
				Started: a.Started, Finished: a.Finished, Error: actionError(a),
			}
		}
		return nil
	})
	if err != nil {
		return nil, 0, fmt.Errorf("listing actions of %s %d: %w", strings.ReplaceAll(kind, "_", " "), id, err)
	}
	slices.SortFunc(newest, func(a, b Action) int { return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.ID, b.ID)) })
	return newest, older, nil
}

func actionError(a *hcloud.Action) string {
	if a.Status != hcloud.ActionStatusError {
		return ""
	}
	return strings.TrimSpace(a.ErrorMessage + " (" + a.ErrorCode + ")")
}
