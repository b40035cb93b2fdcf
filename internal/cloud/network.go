package cloud

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/underlay-ccm/underlay/routes"
)

// View is a network as controllers see it: its route table, and the servers
// with their addresses in it.
type View struct {
	ID      int64
	Table   routes.Table
	Servers Servers
}

// Network is a View that outlives its network: one that is deleted and created
// again under the same name is another one to the provider, and the same to
// whoever configured the name. The route table is looked at all the time, so
// the loss is noticed there.
type Network struct {
	find func(context.Context) (View, error)
	gone func(error) bool

	mu   sync.RWMutex
	view View
}

// NewNetwork begins with a view that was found before. find looks for the
// network as it is configured; gone recognizes the error that says that what
// was found isn't there any more.
func NewNetwork(view View, find func(context.Context) (View, error), gone func(error) bool) *Network {
	return &Network{find: find, gone: gone, view: view}
}

// Table is the network's route table; listing it finds the network again.
func (n *Network) Table() routes.Table { return followedTable{n} }

// Servers are the servers with their addresses in the network.
func (n *Network) Servers() Servers { return followedServers{n} }

// ID is the network's at this moment.
func (n *Network) ID() int64 { return n.now().ID }

func (n *Network) now() View {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.view
}

type followedTable struct{ network *Network }

var _ routes.Table = followedTable{}

func (t followedTable) List(ctx context.Context) ([]routes.Route, error) {
	found, err := t.network.now().Table.List(ctx)
	if err == nil || !t.network.gone(err) {
		return found, err
	}
	view, again := t.network.find(ctx)
	if again != nil {
		return nil, fmt.Errorf("%w; looking for it again: %w", err, again)
	}
	t.network.mu.Lock()
	t.network.view = view
	t.network.mu.Unlock()
	return view.Table.List(ctx)
}

func (t followedTable) Add(ctx context.Context, r routes.Route) error {
	return t.network.now().Table.Add(ctx, r)
}

func (t followedTable) Replace(ctx context.Context, old, to routes.Route, by time.Time) error {
	return t.network.now().Table.Replace(ctx, old, to, by)
}

func (t followedTable) Delete(ctx context.Context, r routes.Route, by time.Time) error {
	return t.network.now().Table.Delete(ctx, r, by)
}

type followedServers struct{ network *Network }

var _ Servers = followedServers{}

func (s followedServers) List(ctx context.Context, since time.Time) ([]Machine, error) {
	return s.network.now().Servers.List(ctx, since)
}

func (s followedServers) Look(ctx context.Context, questions []Question) ([]Machine, error) {
	return s.network.now().Servers.Look(ctx, questions)
}

func (s followedServers) Get(ctx context.Context, id int64) (Machine, error) {
	return s.network.now().Servers.Get(ctx, id)
}
