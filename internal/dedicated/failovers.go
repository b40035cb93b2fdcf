package dedicated

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/internal/cloud"
	"github.com/underlay-ccm/underlay/internal/requests"
	"github.com/underlay-ccm/underlay/internal/robot"
)

// FailoverRobot is what moves failover addresses; *robot.Client is one.
type FailoverRobot interface {
	Failovers(ctx context.Context) ([]robot.Failover, error)
	RouteFailover(ctx context.Context, ip, to netip.Addr) (robot.Failover, error)
	UnrouteFailover(ctx context.Context, ip netip.Addr) (robot.Failover, error)
	FailoverWait(p requests.Priority) time.Duration
}

// FailoverOptions say which failover addresses may be moved, and where to.
type FailoverOptions struct {
	Robot FailoverRobot
	// Servers tells the main addresses of servers.
	Servers cloud.Inventory
	// Ranges are the addresses of pools that are failover addresses. That one is in a pool is the
	// operator's consent to move it between the cluster's nodes.
	Ranges []addresses.Range
	// Nodes are the provider IDs of the cluster's Nodes on dedicated servers, by the servers'
	// numbers. All of them, or an error.
	Nodes func(context.Context) (map[int64]string, error)
}

// Failovers routes the account's failover addresses to servers. It is the mover of addresses for
// addresses/controller.
//
// An address that is in no pool is never touched. One that is routed to a server that is no Node of
// the cluster stays there, as Robot has no labels by which its owner could agree, unless it is known
// that the server was the cluster's: it was a Node since this process began, or it has the name of
// the Node that the ledger had the address held by, and that is gone.
//
// All programs of the account together have 50 moves an hour. A planned move leaves 5 of them for the
// failures of nodes, and one for the balance alone (a context of background priority) is refused,
// because it helps nobody. What would have to wait for the quota is refused at once, with the time to
// wait.
//
// A move takes a minute. After a write whose fate is unknown the address is looked at, and it is not
// routed again before that time is over: each try would cost one of the 50.
type Failovers struct {
	o FailoverOptions

	looking chan struct{} // held while the addresses are looked at
	mu      sync.Mutex    // guards what follows
	known   []robot.Failover
	asked   time.Time                  // of known; zero: there is none, or it is outdated
	until   map[netip.Prefix]time.Time // a move may be under way until then
	nodes   map[int64]bool             // the servers that are Nodes, or were
}

const (
	// failoversFresh is how old what is known may be when an address is to be moved: the moves that
	// follow from the failure of one node share one look.
	failoversFresh = 5 * time.Second
	// failoversUnderWay is the same while a move may be under way whose end nobody told.
	failoversUnderWay = 20 * time.Second
	// lookAgain is how old it may be for who wants to know all: Robot allows 100 looks an hour.
	lookAgain = time.Minute
	// moveTakes is how long a move may be under way whose reply was lost: it takes 40 to 60 s.
	moveTakes = 70 * time.Second
	// failoverNet is the length of a failover net of IPv6.
	failoverNet = 64
)

// NewFailovers asks nothing.
func NewFailovers(o FailoverOptions) *Failovers {
	return &Failovers{
		o: o, looking: make(chan struct{}, 1),
		until: map[netip.Prefix]time.Time{}, nodes: map[int64]bool{},
	}
}

// Routed returns which machine each address of the pools is routed to, by its provider ID; empty:
// none. An address that is missing is no failover address of the account.
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
		for _, address := range pooled(failover, f.o.Ranges) {
			routed[address] = machine(failover, servers, nodes)
		}
	}
	return routed, nil
}

// mostInNet is how many addresses of one net are told of.
const mostInNet = 64

// netOf is what a failover address, or an address of a failover net, moves with.
func netOf(a netip.Addr) netip.Prefix {
	bits := a.BitLen()
	if a.Is6() {
		bits = failoverNet
	}
	return netip.PrefixFrom(a, bits).Masked()
}

// pooled are the addresses of the pools that a failover address is.
func pooled(failover robot.Failover, ranges []addresses.Range) (within []netip.Addr) {
	net := netOf(failover.IP)
	for _, r := range ranges {
		first := r.First
		if first.Less(net.Addr()) {
			first = net.Addr()
		}
		for a := first; r.Contains(a) && net.Contains(a) && len(within) < mostInNet; a = a.Next() {
			within = append(within, a)
		}
	}
	return within
}

// machine is the provider ID of the server that a failover address is routed to, be it a Node's or
// not; what no server of the account is, is told by its address.
func machine(failover robot.Failover, servers []cloud.Machine, nodes map[int64]string) string {
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

// routedTo finds the server whose main address is this one; -1: none has it.
func routedTo(servers []cloud.Machine, active netip.Addr) int {
	return slices.IndexFunc(servers, func(s cloud.Machine) bool { return mainAddress(s, active) == active })
}

// indexOf finds the failover address that an address is of; -1: none.
func indexOf(found []robot.Failover, a netip.Addr) int {
	return slices.IndexFunc(found, func(f robot.Failover) bool { return netOf(f.IP).Contains(a) })
}

// mainAddress is what a failover address of a family is routed to a server by: its main IPv4
// address, or that of its main IPv6 net.
func mainAddress(s cloud.Machine, family netip.Addr) netip.Addr {
	if family.Is4() {
		return s.PublicIPv4
	}
	return s.PublicIPv6.Addr()
}

// machines are the Nodes, and remembers their servers.
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

// look returns the account's failover addresses as they were not longer than so ago, or as they are
// now.
func (f *Failovers) look(ctx context.Context, fresh time.Duration) ([]robot.Failover, error) {
	select {
	case f.looking <- struct{}{}:
		defer func() { <-f.looking }()
	case <-ctx.Done():
		return nil, fmt.Errorf("listing failover addresses: %w", ctx.Err())
	}
	f.mu.Lock()
	known, asked := f.known, f.asked
	f.mu.Unlock()
	if !asked.IsZero() && time.Since(asked) < fresh {
		return known, nil
	}
	asked = time.Now()
	known, err := f.o.Robot.Failovers(ctx)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known, f.asked = known, asked
	return known, nil
}

// outdate lets the next look be a new one.
func (f *Failovers) outdate() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = time.Time{}
}

// Missing returns addresses of the pools that no failover address of the account is, the first of
// each range: a Service that gets one of them is not reached.
func (f *Failovers) Missing(ctx context.Context) (missing []netip.Addr, err error) {
	found, err := f.look(ctx, lookAgain)
	if err != nil {
		return nil, err
	}
	for _, r := range f.o.Ranges {
		for a := r.First; r.Contains(a); a = a.Next() {
			i := indexOf(found, a)
			if i < 0 {
				missing = append(missing, a)
				break
			}
			if netOf(found[i].IP).Contains(r.Last) {
				break // all of it is one net
			}
		}
	}
	return missing, nil
}
