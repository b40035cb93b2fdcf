package controller_test

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/routes"
)

// servers is a project behind a cache: a fresh list shows changes at once, other lists after five
// minutes.
type servers struct {
	mu        sync.Mutex
	now       project
	known     project
	requested time.Time
	lists     int
	calls     int
	err       error
	// takes is the duration of a fresh list: it has many pages, or its requests wait.
	takes time.Duration
}

type project struct {
	of        map[string]netip.Addr // attached, by Node name
	detached  map[string]bool       // existing, and not attached
	strangers []netip.Addr
	aliases   map[string][]netip.Addr // further addresses, by Node name
}

func (p project) clone() project {
	return project{
		maps.Clone(p.of), maps.Clone(p.detached), slices.Clone(p.strangers), maps.Clone(p.aliases),
	}
}

func (s *servers) Gateways(
	_ context.Context, nodes []*corev1.Node, fresh bool,
) (routes.Gateways, error) {
	if fresh {
		time.Sleep(s.takes)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if fresh || s.requested.IsZero() || time.Since(s.requested) > 5*time.Minute {
		if err := s.list(); err != nil {
			return routes.Gateways{}, err
		}
	}
	g := routes.Gateways{
		Of: map[string]netip.Addr{}, IDs: map[string]string{}, Missing: map[string]routes.Missing{},
		Servers: map[netip.Addr]string{},
	}
	for name, a := range s.known.of {
		g.Servers[a] = "id-" + name
	}
	for _, a := range s.known.strangers {
		g.Servers[a] = "stranger"
	}
	for name, addrs := range s.known.aliases {
		for _, a := range addrs {
			g.Servers[a] = "id-" + name
		}
	}
	g.Aliases, g.Attached = s.known.aliases, len(g.Servers)
	for _, n := range nodes {
		if a, ok := s.known.of[n.Name]; ok {
			g.Of[n.Name], g.IDs[n.Name] = a, "id-"+n.Name
		} else {
			g.Missing[n.Name] = routes.Missing{Detached: s.known.detached[n.Name], Reason: "no server in the network"}
		}
	}
	return g, nil
}

// Look lists the servers, as if all were on one page.
func (s *servers) Look(context.Context, []*corev1.Node) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list()
}

func (s *servers) list() error {
	if s.err != nil {
		return s.err
	}
	s.known, s.requested = s.now.clone(), time.Now()
	s.lists++
	return nil
}

// callCount returns the number of calls, for lists of any age.
func (s *servers) callCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// listed returns the number of lists of all servers.
func (s *servers) listed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lists
}

func (s *servers) attach(name, addr string) {
	s.change(func(p *project) { p.of[name] = netip.MustParseAddr(addr); delete(p.detached, name) })
}

func (s *servers) detach(name string) {
	s.change(func(p *project) { delete(p.of, name); p.detached[name] = true })
}

// vanish removes a server from the list, rightly or wrongly.
func (s *servers) vanish(name string) {
	s.change(func(p *project) { delete(p.of, name); delete(p.detached, name) })
}

func (s *servers) change(edit func(*project)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	edit(&s.now)
}
