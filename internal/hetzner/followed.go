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

// Followed is the network of a name, also after it was deleted and created again: to the
// API that is another network, and to the user that configured the name the same. Its
// route table is read all the time, so the loss is noticed there. It is a routes.Table.
type Followed struct {
	client   *Client
	idOrName string
	now      atomic.Pointer[followed]
}

// followed is a network with the servers' addresses in it.
type followed struct {
	*Network
	servers *Servers
}

var _ routes.Table = (*Followed)(nil)

// Follow begins with a network that was found by its ID or its name before.
func (c *Client) Follow(n *Network, idOrName string) *Followed {
	f := &Followed{client: c, idOrName: idOrName}
	f.now.Store(&followed{n, c.Servers(n.ID)})
	return f
}

// Network is the network of this moment.
func (f *Followed) Network() *Network { return f.now.Load().Network }

// Servers are the servers with their addresses in the network of each moment.
func (f *Followed) Servers() cloud.Servers { return followedServers{f} }

// List implements routes.Table. If the network is gone, it looks for the network again.
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
