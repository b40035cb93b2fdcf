package hetzner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/internal/ipnet"
	"github.com/underlay-ccm/underlay/internal/leadership"
	"github.com/underlay-ccm/underlay/internal/requests"
	"github.com/underlay-ccm/underlay/routes"
)

var _ routes.Table = (*Network)(nil)

// List implements routes.Table, in one request with the priority of the writes that wait for it. If
// the network was deleted, it looks for one that has its ID or name now.
func (n *Network) List(ctx context.Context) ([]routes.Route, error) {
	ctx = requests.WithPriority(ctx, requests.Urgent)
	found, err := n.look(ctx)
	if errors.Is(err, ErrNoNetwork) {
		found, err = n.read(ctx, n.idOrName)
	}
	if err != nil {
		return nil, err
	}
	return found.Routes, nil
}

// Add implements routes.Table.
func (n *Network) Add(ctx context.Context, r routes.Route) error {
	return n.exclusive(ctx, func(ctx context.Context, ref *hcloud.Network) error {
		return n.add(ctx, ref, r)
	})
}

// Delete implements routes.Table.
func (n *Network) Delete(ctx context.Context, r routes.Route, by time.Time) error {
	return n.exclusive(ctx, func(ctx context.Context, ref *hcloud.Network) error {
		return n.delete(ctx, ref, r, by)
	})
}

// Replace implements routes.Table. The API has no such change, so it is a deletion and an
// addition with no other change in between. It is completed even if the caller or the process is
// stopped, since the node would be left without a route.
func (n *Network) Replace(ctx context.Context, old, to routes.Route, by time.Time) error {
	return n.exclusive(ctx, func(ctx context.Context, ref *hcloud.Network) error {
		ctx, release := leadership.Hold(ctx)
		defer release()
		if err := n.delete(ctx, ref, old, by); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		return n.add(ctx, ref, to)
	})
}

func (n *Network) add(ctx context.Context, ref *hcloud.Network, r routes.Route) error {
	ctx = requests.WithPriority(ctx, requests.Urgent)
	err := n.client.change(ctx, time.Time{}, func(ctx context.Context) (*hcloud.Action, error) {
		action, _, err := n.client.api.Network.AddRoute(ctx, ref,
			hcloud.NetworkAddRouteOpts{
				Route: hcloud.NetworkRoute{Destination: ipnet.Of(r.Dst), Gateway: r.Via.AsSlice()},
			})
		return action, err
	})
	if hcloud.IsError(err, hcloud.ErrorCodeResourceLimitExceeded) {
		err = errors.Join(routes.ErrFull, err)
	}
	if err != nil {
		return fmt.Errorf("adding route %s to network %d: %w", r, ref.ID, steady(err))
	}
	return nil
}

func (n *Network) delete(
	ctx context.Context, ref *hcloud.Network, r routes.Route, by time.Time,
) error {
	ctx = requests.WithPriority(ctx, requests.Urgent)
	err := n.client.change(ctx, by, func(ctx context.Context) (*hcloud.Action, error) {
		action, _, err := n.client.api.Network.DeleteRoute(ctx, ref,
			hcloud.NetworkDeleteRouteOpts{
				Route: hcloud.NetworkRoute{Destination: ipnet.Of(r.Dst), Gateway: r.Via.AsSlice()},
			})
		return action, err
	})
	if NotFound(err) {
		// Either the route or the network is missing.
		var have *NetworkDetails
		if have, err = n.look(ctx); err == nil && slices.Contains(have.Routes, r) {
			err = errors.New("the API doesn't find it, and lists it")
		}
	}
	if err != nil {
		return fmt.Errorf("deleting route %s from network %d: %w", r, ref.ID, steady(err))
	}
	return nil
}

// steady gives an error of the API the same text each time: the API's own contains a correlation
// ID, and a Node's condition would be written after each failure.
func steady(err error) error {
	var api hcloud.Error
	if !errors.As(err, &api) {
		return err
	}
	text := fmt.Sprintf("%s (%s)", api.Message, api.Code)
	return steadyError{err, strings.ReplaceAll(err.Error(), api.Error(), text)}
}

type steadyError struct {
	error
	text string
}

func (e steadyError) Error() string { return e.text }

func (e steadyError) Unwrap() error { return e.error }
