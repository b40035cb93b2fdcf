package robot

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/internal/cloud"
	"github.com/underlay-ccm/underlay/internal/requests"
)

// Route routes an address to a machine, and returns when that is done, after a minute. It may be
// called concurrently for several addresses. After an error, the caller retries.
func (f *Failovers) Route(ctx context.Context, address netip.Addr, to addresses.Destination) error {
	priority := requests.Urgent
	if to.Planned {
		priority = requests.Normal
	}
	if err := f.route(requests.WithPriority(ctx, priority), address, to); err != nil {
		return fmt.Errorf("failover address %s: %w", address, err)
	}
	return nil
}

func (f *Failovers) route(ctx context.Context, address netip.Addr, d addresses.Destination) error {
	nodes, err := f.machines(ctx)
	if err != nil {
		return err
	}
	to, err := f.destination(ctx, address, d.ProviderID, nodes)
	if err != nil {
		return err
	}
	failover, err := f.find(ctx, address)
	if err != nil {
		return err
	}
	if failover.Active == to {
		f.arrived(failover.IP)
		return nil
	}
	if err := f.stays(ctx, failover, d.Former); err != nil {
		return err
	}
	if err := f.affordable(ctx); err != nil {
		return err
	}
	if err := f.leaves(failover.IP); err != nil {
		return err
	}
	_, err = f.o.Client.RouteFailover(ctx, failover.IP, to)
	f.outdate()
	var refused *Error
	switch {
	case err == nil, IsCode(err, CodeAlreadyRouted):
		f.arrived(failover.IP)
		return nil
	case IsCode(err, CodeLocked):
		return fmt.Errorf("%w: %w", errUnderWay, err)
	case errors.As(err, &refused) && refused.Status < http.StatusInternalServerError,
		errors.As(err, new(*CredentialsError)):
		f.arrived(failover.IP) // no move of this address is in progress
		if IsCode(err, CodeServerNotFound) {
			return &addresses.Unrouted{About: addresses.AboutNode, Err: err}
		}
		return err
	}
	// The routing is unknown until the next list.
	if now, lookErr := f.find(ctx, address); lookErr == nil && now.Active == to {
		f.arrived(failover.IP)
		return nil
	}
	return err
}

// destination returns the main address of the machine, or the zero Addr to remove the routing.
func (f *Failovers) destination(
	ctx context.Context, address netip.Addr, machine string, nodes map[int64]string,
) (netip.Addr, error) {
	if machine == "" {
		return netip.Addr{}, nil
	}
	var number int64
	for n, id := range nodes {
		if id == machine {
			number = n
		}
	}
	if number == 0 {
		return netip.Addr{}, fmt.Errorf("no Node on a dedicated server has the provider ID %q", machine)
	}
	there := func(s cloud.Machine) bool { return s.ID == number }
	servers, err := f.o.Servers.List(ctx, time.Time{})
	i := slices.IndexFunc(servers, there)
	if err == nil && i < 0 {
		servers, err = f.o.Servers.List(ctx, time.Now())
		i = slices.IndexFunc(servers, there)
	}
	switch {
	case err != nil:
		return netip.Addr{}, err
	case i < 0:
		return netip.Addr{},
			addresses.Refuse(addresses.AboutNode, "dedicated server %d is not in the account", number)
	}
	to := mainAddress(servers[i], address)
	if !to.IsValid() {
		return netip.Addr{}, addresses.Refuse(addresses.AboutNode, "dedicated server %d has no main address of the address's family, by which it could be routed there", number)
	}
	return to, nil
}

func (f *Failovers) find(ctx context.Context, address netip.Addr) (Failover, error) {
	if !slices.ContainsFunc(f.o.Ranges, func(r addresses.Range) bool { return r.Contains(address) }) {
		return Failover{}, addresses.Refuse(addresses.AboutAddress,
			"it is in no pool with failover addresses, and naming it there is the consent to move it")
	}
	fresh := failoversFresh
	if f.underWay(address) {
		fresh = failoversUnderWay
	}
	found, err := f.look(ctx, fresh)
	if err != nil {
		return Failover{}, err
	}
	i := indexOf(found, address)
	if i < 0 {
		return Failover{}, addresses.Refuse(addresses.AboutAddress, "the account has none with "+
			"this address: order it, or take the address out of addresses.pools")
	}
	return found[i], nil
}

// stays returns why a failover address must not be moved now, or nil. former are the Nodes that
// held it by the ledger: servers of these names are the cluster's, as Nodes are matched with
// servers by name too.
func (f *Failovers) stays(ctx context.Context, failover Failover, former []string) error {
	if !failover.Active.IsValid() {
		return nil
	}
	servers, err := f.o.Servers.List(ctx, time.Time{})
	if err != nil {
		return err
	}
	i := routedTo(servers, failover.Active)
	if i < 0 {
		return addresses.Refuse(addresses.AboutAddress, "it is routed to %s, which is no main address of a server of the account: route it to one of the cluster's servers in Robot to agree that it moves", failover.Active)
	}
	f.mu.Lock()
	ours := f.nodes[servers[i].ID] || slices.Contains(former, servers[i].Name)
	f.mu.Unlock()
	if !ours {
		return addresses.Refuse(addresses.AboutAddress, "it is routed to dedicated server %d, which is no Node of the cluster: route it to one of the cluster's servers in Robot to agree that it moves", servers[i].ID)
	}
	return nil
}

// affordable returns an error if the account's quota has no room for a move of the priority.
func (f *Failovers) affordable(ctx context.Context) error {
	p := requests.PriorityOf(ctx)
	if p == requests.Background {
		return errors.New("it is not moved for the balance alone: the account has 50 moves an hour, for failures and drains")
	}
	wait := f.o.Client.FailoverWait(p)
	at := time.Now().Add(wait + time.Minute).UTC().Format("15:04") // constant during the wait
	switch {
	case wait <= 0:
		return nil
	case p == requests.Urgent:
		return fmt.Errorf("the account's 50 moves an hour are used up; the next one is possible at %s UTC", at)
	}
	return fmt.Errorf("the rest of the account's 50 moves an hour is kept for failures of nodes; a planned move is possible at %s UTC", at)
}

// leaves records the start of a move, or returns an error if a move is in progress.
func (f *Failovers) leaves(ip netip.Addr) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if until := f.until[netOf(ip)]; time.Now().Before(until) {
		return fmt.Errorf("%w; it is not tried again before %s UTC", errUnderWay,
			until.UTC().Format(time.TimeOnly))
	}
	f.until[netOf(ip)] = time.Now().Add(moveTakes)
	return nil
}

// underWay reports whether a move of the address may be in progress.
func (f *Failovers) underWay(address netip.Addr) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Now().Before(f.until[netOf(address)])
}

var errUnderWay = errors.New("a move of it is in progress, and Robot has not reported its end")

// arrived records that no move of the address is in progress.
func (f *Failovers) arrived(ip netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.until, netOf(ip))
}
