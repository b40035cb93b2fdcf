package cloud_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/internal/cloud"
	"github.com/underlay-ccm/underlay/routes"
)

// shelf is a network that may be taken away.
type shelf struct {
	*project
	routes []routes.Route
	err    error
}

func (s *shelf) table() routes.Table { return shelfTable{s} }

type shelfTable struct{ *shelf }

func (s shelfTable) List(context.Context) ([]routes.Route, error) { return s.routes, s.err }
func (s shelfTable) Add(_ context.Context, r routes.Route) error {
	s.shelf.routes = append(s.shelf.routes, r)
	return s.err
}

func (s shelfTable) Replace(context.Context, routes.Route, routes.Route, time.Time) error {
	return s.err
}
func (s shelfTable) Delete(context.Context, routes.Route, time.Time) error { return s.err }

// A network that is gone is looked for under its name; another one found there
// takes its place, for routes and for servers.
func TestANetworkIsFoundAgain(t *testing.T) {
	errGone, errNowhere := errors.New("no such network"), errors.New("still none")
	first := &shelf{project: &project{servers: []cloud.Machine{server(1, "a", "10.0.0.2")}}}
	second := &shelf{project: &project{servers: []cloud.Machine{server(1, "a", "10.0.0.9")}}}
	looked, there := 0, false
	n := cloud.NewNetwork(cloud.View{ID: 1, Table: first.table(), Servers: first.project}, func(context.Context) (cloud.View, error) {
		if looked++; !there {
			return cloud.View{}, errNowhere
		}
		return cloud.View{ID: 2, Table: second.table(), Servers: second.project}, nil
	}, func(err error) bool { return errors.Is(err, errGone) })
	list := func() error { _, err := n.Table().List(t.Context()); return err }
	address := func() netip.Addr {
		servers, err := n.Servers().List(t.Context(), time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		return servers[0].PrivateIP
	}

	first.err = errors.New("503")
	if err := list(); !errors.Is(err, first.err) || looked > 0 {
		t.Errorf("a failure is %v after %d looks, want it as it is and no look", err, looked)
	}
	first.err = errGone
	if err := list(); !errors.Is(err, errGone) || !errors.Is(err, errNowhere) || looked != 1 {
		t.Errorf("without any network: %v after %d looks", err, looked)
	}
	if address() != netip.MustParseAddr("10.0.0.2") {
		t.Error("the servers are forgotten")
	}
	there = true
	if err := list(); err != nil || looked != 2 {
		t.Errorf("with another network: %v after %d looks", err, looked)
	}
	if n.ID() != 2 {
		t.Errorf("the network is %d, want the one that was found", n.ID())
	}
	if address() != netip.MustParseAddr("10.0.0.9") {
		t.Error("the servers' addresses are those of the network that is gone")
	}
	if err := n.Table().Add(t.Context(), routes.Route{}); err != nil || len(second.routes) != 1 || len(first.routes) != 0 {
		t.Errorf("a route was added to the wrong network: %v", err)
	}
	if err := list(); err != nil || looked != 2 {
		t.Errorf("it was looked for again: %v", err)
	}
}
