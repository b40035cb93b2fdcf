package hetzner

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/underlay-ccm/underlay/internal/cloud"
	"github.com/underlay-ccm/underlay/routes"
)

// Followed is the network with a configured name, even after it was deleted and recreated, which
// to the API is a different network. List detects the deletion, since it is called regularly.
// Followed implements routes.Table.
type Followed struct {
	client   *Client
	idOrName string
	now      atomic.Pointer[followed]
}

type followed struct {
	*Network
	servers *Servers
}

var _ routes.Table = (*Followed)(nil)

// Follow returns a Followed that starts with n, which was found by idOrName.
func (c *Client) Follow(n *Network, idOrName string) *Followed {
	f := &Followed{client: c, idOrName: idOrName}
	f.now.Store(&followed{n, c.Servers(n.ID)})
	return f
}

// Network returns the current network.
func (f *Followed) Network() *Network { return f.now.Load().Network }

// Servers returns the servers, at each call with their addresses in the current network.
func (f *Followed) Servers() cloud.Servers { return followedServers{f} }

// List implements routes.Table. If the network was deleted, it looks the network up again.
func (f *Followed) List(ctx context.Context) ([]routes.Route, error) {
	found, err := f.Network().List(ctx)
	if !errors.Is(err, ErrNoNetwork) {
		return found, err
	}
	n, again := f.client.Network(ctx, f.idOrName)
	if again != nil {
		return nil, fmt.Errorf("%w; looking for it again: %w", err, again)
	}
	f.now.Store(&followed{n, f.client.Servers(n.ID)})
	return n.List(ctx)
}

// Add implements routes.Table.
func (f *Followed) Add(ctx context.Context, r routes.Route) error { return f.Network().Add(ctx, r) }

// Replace implements routes.Table.
func (f *Followed) Replace(ctx context.Context, old, to routes.Route, by time.Time) error {
	return f.Network().Replace(ctx, old, to, by)
}

// Delete implements routes.Table.
func (f *Followed) Delete(ctx context.Context, r routes.Route, by time.Time) error {
	return f.Network().Delete(ctx, r, by)
}

type followedServers struct{ *Followed }

func (f followedServers) List(ctx context.Context, since time.Time) ([]cloud.Machine, error) {
	return f.now.Load().servers.List(ctx, since)
}

func (f followedServers) Look(
	ctx context.Context, questions []cloud.Question,
) ([]cloud.Machine, error) {
	return f.now.Load().servers.Look(ctx, questions)
}

func (f followedServers) Get(ctx context.Context, id int64) (cloud.Machine, error) {
	return f.now.Load().servers.Get(ctx, id)
}
