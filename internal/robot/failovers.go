package robot

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/internal/cloud"
)

// FailoverOptions limits which failover addresses may be moved, and to which servers.
type FailoverOptions struct {
	Client *Client
	// Servers has the main addresses of servers.
	Servers cloud.Inventory
	// Ranges are the pool addresses that are failover addresses. Listing an address in a pool is
	// the operator's consent to move it between the cluster's nodes.
	Ranges []addresses.Range
	// Nodes returns the provider IDs of the cluster's Nodes on dedicated servers by server
	// number: all of them, or an error.
	Nodes func(context.Context) (map[int64]string, error)
}

// Failovers routes the account's failover addresses to servers. It implements the Router of
// addresses/controller.
//
// It never moves an address that is in no pool. An address that is routed to a server that is no
// Node of the cluster is not moved, since Robot has no labels for its owner's consent, unless
// the server was the cluster's: it was a Node since this process started, or has the name of the
// deleted Node that held the address by the ledger.
//
// All programs of the account together have 50 moves an hour. A planned move leaves 5 of them
// for node failures, and a move only for balance (of background priority) is refused. A move
// that would have to wait for the quota is refused at once, with the time to wait.
//
// A move takes a minute. After a write with an unknown outcome, the address is read, and not
// routed again before that time is over: each attempt would cost one of the 50.
type Failovers struct {
	o FailoverOptions

	listing   chan struct{} // guards the next two fields, also while listing
	known     []Failover
	requested time.Time // when known was requested; zero: it is missing

	mu      sync.Mutex                 // guards the fields below
	until   map[netip.Prefix]time.Time // a move may be in progress until then
	nodes   map[int64]bool             // servers that are or were Nodes
	changed time.Time                  // when the last move ended: older lists are outdated
}

const (
	// failoversFresh is the maximum age of the list for a move; moves after a node failure share
	// a list.
	failoversFresh = 5 * time.Second
	// failoversUnderWay replaces it while a move with an unknown end may be in progress.
	failoversUnderWay = 20 * time.Second
	// lookAgain is the maximum age in other cases: Robot allows 100 lists an hour.
	lookAgain = time.Minute
	// moveTakes is how long a move with a lost response may be in progress: it takes 40 to 60 s.
	moveTakes = 70 * time.Second
	// failoverNet is the prefix length of an IPv6 failover net.
	failoverNet = 64
)

// NewFailovers returns the router of failover addresses. It sends no request.
func NewFailovers(o FailoverOptions) *Failovers {
	return &Failovers{
		o: o, listing: make(chan struct{}, 1),
		until: map[netip.Prefix]time.Time{}, nodes: map[int64]bool{},
	}
}

// Routed returns the provider ID of the machine to which each pool address is routed, or "" if
// it is not routed, without addresses that are no failover addresses of the account.
func (f *Failovers) Routed(ctx context.Context) (map[netip.Addr]string, error) {
	nodes, err := f.machines(ctx)
	if err != nil {
		return nil, err
	}
	found, err := f.look(ctx, lookAgain)
	if err != nil {
		return nil, err
	}
	servers, err := f.o.Servers.List(ctx, time.Time{})
	if err != nil {
		return nil, err
	}
	routed := map[netip.Addr]string{}
	for _, failover := range found {
		for _, address := range addresses.Routed(netOf(failover.IP), f.o.Ranges) {
			routed[address] = machine(failover, servers, nodes)
		}
	}
	return routed, nil
}

// netOf returns the failover address or net that covers an address.
func netOf(a netip.Addr) netip.Prefix {
	bits := a.BitLen()
	if a.Is6() {
		bits = failoverNet
	}
	return netip.PrefixFrom(a, bits).Masked()
}

// machine returns the provider ID of the server routed to, or its main address outside the account.
func machine(failover Failover, servers []cloud.Machine, nodes map[int64]string) string {
	if !failover.Active.IsValid() {
		return ""
	}
	i := routedTo(servers, failover.Active)
	if i < 0 {
		return failover.Active.String()
	}
	if id := nodes[servers[i].ID]; id != "" {
		return id
	}
	return servers[i].ProviderID()
}

func routedTo(servers []cloud.Machine, active netip.Addr) int {
	return slices.IndexFunc(servers, func(s cloud.Machine) bool {
		return mainAddress(s, active) == active
	})
}

func indexOf(found []Failover, a netip.Addr) int {
	return slices.IndexFunc(found, func(f Failover) bool { return netOf(f.IP).Contains(a) })
}

// mainAddress returns the address by which a failover address of the family is routed to a
// server: its main IPv4 address, or that of its main IPv6 net.
func mainAddress(s cloud.Machine, family netip.Addr) netip.Addr {
	if family.Is4() {
		return s.PublicIPv4
	}
	return s.PublicIPv6.Addr()
}

func (f *Failovers) machines(ctx context.Context) (map[int64]string, error) {
	nodes, err := f.o.Nodes(ctx)
	if err != nil {
		return nil, fmt.Errorf("routing failover addresses: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for number := range nodes {
		f.nodes[number] = true
	}
	return nodes, nil
}

// look returns the account's failover addresses, at most fresh old.
func (f *Failovers) look(ctx context.Context, fresh time.Duration) ([]Failover, error) {
	select {
	case f.listing <- struct{}{}:
		defer func() { <-f.listing }()
	case <-ctx.Done():
		return nil, fmt.Errorf("listing failover addresses: %w", ctx.Err())
	}
	f.mu.Lock()
	changed := f.changed
	f.mu.Unlock()
	requested := time.Now()
	if requested.Sub(f.requested) < fresh && f.requested.After(changed) {
		return f.known, nil
	}
	known, err := f.o.Client.Failovers(ctx)
	if err != nil {
		return nil, err
	}
	f.known, f.requested = known, requested
	return known, nil
}

// outdate makes the next look a new request.
func (f *Failovers) outdate() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changed = time.Now()
}
