package hetzner

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/internal/cloud"
	"github.com/underlay-ccm/underlay/internal/ipnet"
	"github.com/underlay-ccm/underlay/routes"
)

// ErrNoNetwork means that no network has the configured ID or name.
var ErrNoNetwork = errors.New("no such network")

// NetworkDetails describes a network and its contents as read.
type NetworkDetails struct {
	ID      int64
	Name    string
	IPRange netip.Prefix
	Subnets []netip.Prefix
	// DedicatedRanges contain the dedicated servers' addresses: the subnets of type vswitch, or if
	// there is none, the network's own range.
	DedicatedRanges []netip.Prefix
	Coupling        routes.Coupling
	// VSwitches maps the subnets that are coupled with a vSwitch to its ID.
	VSwitches map[netip.Prefix]int64
	// Routes are all routes, of any owner, in the API's order.
	Routes []routes.Route
	// Servers and LoadBalancers count the attached resources.
	Servers, LoadBalancers int
}

func networkDetails(n *hcloud.Network) *NetworkDetails {
	d := &NetworkDetails{
		ID: n.ID, Name: n.Name, IPRange: ipnet.Prefix(n.IPRange),
		Coupling:  routes.Coupling{Exposed: n.ExposeRoutesToVSwitch},
		VSwitches: map[netip.Prefix]int64{},
		Servers:   len(n.Servers), LoadBalancers: len(n.LoadBalancers),
	}
	for _, subnet := range n.Subnets {
		r := ipnet.Prefix(subnet.IPRange)
		d.Subnets = append(d.Subnets, r)
		if subnet.Type == hcloud.NetworkSubnetTypeVSwitch {
			d.Coupling.Subnets, d.VSwitches[r] = append(d.Coupling.Subnets, r), subnet.VSwitchID
		}
	}
	if d.DedicatedRanges = d.Coupling.Subnets; len(d.DedicatedRanges) == 0 {
		d.DedicatedRanges = []netip.Prefix{d.IPRange}
	}
	for _, r := range n.Routes {
		d.Routes = append(d.Routes, routes.Route{
			Dst: ipnet.Prefix(r.Destination), Via: ipnet.Addr(r.Gateway),
		})
	}
	return d
}

// InspectNetwork looks up a network by ID or name. The error wraps ErrNoNetwork if it is missing.
func (c *Client) InspectNetwork(ctx context.Context, idOrName string) (*NetworkDetails, error) {
	found, err := get(ctx, c.api.Network.Get, idOrName)
	switch {
	case err != nil:
		return nil, fmt.Errorf("getting network %q: %w", idOrName, err)
	case found == nil:
		return nil, fmt.Errorf("network %q: %w", idOrName, ErrNoNetwork)
	case !ipnet.Prefix(found.IPRange).IsValid(): // the routes may be missing too
		return nil, fmt.Errorf("getting network %q: the response is incomplete", idOrName)
	}
	return networkDetails(found), nil
}

// Network is the network with a configured ID or name, even after it was deleted and recreated,
// which to the API is a different network. List detects the deletion, since it is called regularly.
//
// The API accepts one change of a network at a time, so a writer serializes all changes of the
// network and of its attachments.
type Network struct {
	client   *Client
	idOrName string
	servers  *Servers
	last     atomic.Pointer[NetworkDetails] // as last read
	// requested is when the last read began, whether it succeeded or not.
	requested atomic.Pointer[time.Time]
}

// Network looks up a network by its ID or name.
func (c *Client) Network(ctx context.Context, idOrName string) (*Network, error) {
	n := &Network{client: c, idOrName: idOrName}
	n.servers = &Servers{client: c, network: func() int64 { return n.Last().ID }}
	if err := n.Find(ctx); err != nil {
		return nil, err
	}
	return n, nil
}

// Find reads the network that has the configured ID or name now.
func (n *Network) Find(ctx context.Context) error {
	_, err := n.read(ctx, n.idOrName)
	return err
}

func (n *Network) read(ctx context.Context, idOrName string) (*NetworkDetails, error) {
	now := time.Now()
	n.requested.Store(&now)
	found, err := n.client.InspectNetwork(ctx, idOrName)
	if err == nil {
		n.last.Store(found)
	}
	return found, err
}

// look reads the network again, also if it has another name now.
func (n *Network) look(ctx context.Context) (*NetworkDetails, error) {
	return n.read(ctx, strconv.FormatInt(n.Last().ID, 10))
}

// Last returns the network as last read.
func (n *Network) Last() *NetworkDetails { return n.last.Load() }

// Servers returns the servers, at each call with their addresses in the current network.
func (n *Network) Servers() cloud.Servers { return n.servers }

// rangesPeriod is how often the network is read for its subnets alone.
const rangesPeriod = 5 * time.Minute

// RefreshDedicatedRanges reads the network for its subnets, unless another read, such as List's,
// began within the last 5 minutes.
func (n *Network) RefreshDedicatedRanges(ctx context.Context) error {
	if time.Since(*n.requested.Load()) < rangesPeriod {
		return nil
	}
	_, err := n.look(ctx)
	return err
}

// Reserved returns the prefixes of the network that nothing else may use: its subnets, its
// gateway, and the default gateway of all servers. Of the subnet vSwitch, with dedicated servers
// and their pods, only the gateway is reserved; the zero Prefix means that there is no such subnet.
func (d *NetworkDetails) Reserved(vSwitch netip.Prefix) []netip.Prefix {
	gatewayOf := func(p netip.Prefix) netip.Addr { return p.Masked().Addr().Next() }
	alone := func(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
	reserved := slices.Clone(d.Subnets)
	if i := slices.Index(reserved, vSwitch); i >= 0 {
		reserved[i] = alone(gatewayOf(vSwitch))
	}
	serverGateway := netip.AddrFrom4([4]byte{172, 31, 1, 1})
	return append(reserved, alone(gatewayOf(d.IPRange)), alone(serverGateway))
}

// ExposeRoutes makes the network expose its routes to the vSwitch that is coupled with it.
func (n *Network) ExposeRoutes(ctx context.Context) error {
	return n.exclusive(ctx, func(ctx context.Context, ref *hcloud.Network) error {
		err := retry(ctx, write, func(ctx context.Context) error {
			expose := true
			_, _, err := n.client.api.Network.Update(ctx, ref, hcloud.NetworkUpdateOpts{
				ExposeRoutesToVSwitch: &expose,
			})
			return err
		})
		if err != nil {
			return fmt.Errorf("exposing the routes of network %d to its vSwitch: %w", ref.ID, err)
		}
		return nil
	})
}

// exclusive runs do, a change of the current network, while no other change of it or of its
// attachments runs. do must not return before the change has ended.
func (n *Network) exclusive(
	ctx context.Context, do func(context.Context, *hcloud.Network) error,
) error {
	ref := &hcloud.Network{ID: n.Last().ID}
	return n.client.writerOf(ref.ID).run(ctx, func(ctx context.Context) error { return do(ctx, ref) })
}

// writer serializes changes.
type writer chan struct{}

func newWriter() writer { return make(writer, 1) }

func (w writer) run(ctx context.Context, do func(context.Context) error) error {
	select {
	case w <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("waiting for other changes: %w", ctx.Err())
	}
	defer func() { <-w }()
	return do(ctx)
}
