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

// The types and methods of this file are for people who look at the project: more
// than the controllers need to know, always from the API itself, and nothing but
// GET requests.

// NetworkDetails is a network and what is in it.
type NetworkDetails struct {
	ID      int64
	Name    string
	IPRange netip.Prefix
	Subnets []netip.Prefix
	// DedicatedRanges are where dedicated servers have their addresses.
	DedicatedRanges []netip.Prefix
	// Coupling is that with a vSwitch.
	Coupling routes.Coupling
	// Routes are all that stand, whoever's, in the order of the API.
	Routes []routes.Route
	// Servers and LoadBalancers are how many are attached.
	Servers, LoadBalancers int
}

// Action is a change of one resource.
type Action struct {
	ID   int64
	Kind string // server or load_balancer
	// Command is the API's word, such as attach_to_network.
	Command           string
	Status            string    // running, success or error
	Started, Finished time.Time // Finished is zero while it runs
	Error             string    // empty unless Status is error
}

// InspectNetwork finds a network by its ID or its name. The error wraps
// ErrNoNetwork if there is none.
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

// ServerActions returns the newest changes of a server that the API remembers,
// oldest first, and how many more there are. It is one request.
func (c *Client) ServerActions(ctx context.Context, id int64) (newest []Action, older int, err error) {
	return actions(ctx, "server", id, func(ctx context.Context, o hcloud.ActionListOpts) ([]*hcloud.Action, *hcloud.Response, error) {
		return c.api.Server.Action.ListFor(ctx, &hcloud.Server{ID: id}, o)
	})
}

// LoadBalancerActions returns the same of a load balancer.
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

// actionError is empty for an action that didn't fail.
func actionError(a *hcloud.Action) string {
	if a.Status != hcloud.ActionStatusError {
		return ""
	}
	return strings.TrimSpace(a.ErrorMessage + " (" + a.ErrorCode + ")")
}
