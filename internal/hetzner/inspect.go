package hetzner

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// The types and methods of this file are for tools that inspect a project: they return more than
// the controllers need, always read from the API, and send only GET requests.

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

// ServerActions returns the newest 50 actions of a server, oldest first, and how many are older.
// It is one request.
func (c *Client) ServerActions(ctx context.Context, id int64) ([]Action, int, error) {
	return actions(ctx, "server", &hcloud.Server{ID: id}, id, c.api.Server.Action.ListFor)
}

// LoadBalancerActions is ServerActions for a load balancer.
func (c *Client) LoadBalancerActions(ctx context.Context, id int64) ([]Action, int, error) {
	balancer := &hcloud.LoadBalancer{ID: id}
	return actions(ctx, "load_balancer", balancer, id, c.api.LoadBalancer.Action.ListFor)
}

func actions[T any](
	ctx context.Context, kind string, of T, id int64,
	list func(context.Context, T, hcloud.ActionListOpts) ([]*hcloud.Action, *hcloud.Response, error),
) (newest []Action, older int, err error) {
	err = retry(ctx, read, func(ctx context.Context) error {
		found, resp, err := list(ctx, of, hcloud.ActionListOpts{
			ListOpts: hcloud.ListOpts{PerPage: 50}, Sort: []string{"id:desc"},
		})
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
