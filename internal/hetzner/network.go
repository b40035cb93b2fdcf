package hetzner

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/internal/ipnet"
	"github.com/underlay-ccm/underlay/routes"
)

// ErrNoNetwork: no network has the configured ID or name.
var ErrNoNetwork = errors.New("no such network")

// Network is one private network. All that changes it, or attaches something to
// it, goes through its one writer, because it takes one change at a time.
type Network struct {
	ID   int64
	Name string
	// IPRange, Subnets and Coupling are as they were when the network was looked up.
	IPRange  netip.Prefix
	Subnets  []netip.Prefix
	Coupling routes.Coupling

	client *Client
	writer writer
	// dedicated and vSwitches are kept by whoever looks at the network; asked is when
	// that was last.
	dedicated atomic.Pointer[[]netip.Prefix]
	vSwitches atomic.Pointer[map[netip.Prefix]int64]
	asked     atomic.Pointer[time.Time]
}

// Network looks up a network by its ID or its name.
func (c *Client) Network(ctx context.Context, idOrName string) (*Network, error) {
	found, err := c.findNetwork(ctx, idOrName)
	if err != nil {
		return nil, err
	}
	return c.network(found), nil
}

func (c *Client) findNetwork(ctx context.Context, idOrName string) (*hcloud.Network, error) {
	found, err := get(ctx, func(ctx context.Context) (*hcloud.Network, *hcloud.Response, error) {
		return c.api.Network.Get(ctx, idOrName)
	})
	if err != nil {
		return nil, fmt.Errorf("getting network %q: %w", idOrName, err)
	}
	if found == nil {
		return nil, fmt.Errorf("network %q: %w", idOrName, ErrNoNetwork)
	}
	return found, nil
}

func (c *Client) network(found *hcloud.Network) *Network {
	n := &Network{
		ID: found.ID, Name: found.Name, IPRange: ipnet.Prefix(found.IPRange),
		client: c, writer: c.writerOf(found.ID),
	}
	n.Coupling.Exposed = found.ExposeRoutesToVSwitch
	for _, subnet := range found.Subnets {
		n.Subnets = append(n.Subnets, ipnet.Prefix(subnet.IPRange))
		if subnet.Type == hcloud.NetworkSubnetTypeVSwitch {
			n.Coupling.Subnets = append(n.Coupling.Subnets, ipnet.Prefix(subnet.IPRange))
		}
	}
	asks := time.Now()
	n.asked.Store(&asks)
	n.keep(found)
	return n
}

// look reads the network.
func (n *Network) look(ctx context.Context) (*hcloud.Network, error) {
	asks := time.Now()
	n.asked.Store(&asks)
	found, err := get(ctx, func(ctx context.Context) (*hcloud.Network, *hcloud.Response, error) {
		return n.client.api.Network.GetByID(ctx, n.ID)
	})
	if err != nil {
		return nil, fmt.Errorf("getting network %d: %w", n.ID, err)
	}
	if found == nil {
		return nil, fmt.Errorf("network %d: %w", n.ID, ErrNoNetwork)
	}
	if !ipnet.Prefix(found.IPRange).IsValid() { // without it, an answer may lack the routes too
		return nil, fmt.Errorf("getting network %d: the answer is incomplete", n.ID)
	}
	n.keep(found)
	return found, nil
}

// rangesPeriod is how often the network is looked at for its subnets alone.
const rangesPeriod = 5 * time.Minute

// RefreshDedicatedRanges looks at the network for its subnets, unless somebody did within the last
// 5 minutes, as List does where there are routes to look at.
func (n *Network) RefreshDedicatedRanges(ctx context.Context) error {
	if time.Since(*n.asked.Load()) < rangesPeriod {
		return nil
	}
	_, err := n.look(ctx)
	return err
}

// DedicatedRanges are where dedicated servers have their addresses in the network, as it was when
// it was looked at last: its subnets of type vswitch, or while there is none, its own range.
func (n *Network) DedicatedRanges() []netip.Prefix { return *n.dedicated.Load() }

// VSwitch is the ID of the vSwitch that a subnet was coupled with when the network was looked at
// last; 0: with none.
func (n *Network) VSwitch(subnet netip.Prefix) int64 { return (*n.vSwitches.Load())[subnet] }

// keep remembers what the network is to dedicated servers.
func (n *Network) keep(found *hcloud.Network) {
	n.dedicated.Store(dedicatedRanges(found))
	vSwitches := map[netip.Prefix]int64{}
	for _, subnet := range found.Subnets {
		if subnet.Type == hcloud.NetworkSubnetTypeVSwitch {
			vSwitches[ipnet.Prefix(subnet.IPRange)] = subnet.VSwitchID
		}
	}
	n.vSwitches.Store(&vSwitches)
}

func dedicatedRanges(n *hcloud.Network) *[]netip.Prefix {
	var ranges []netip.Prefix
	for _, subnet := range n.Subnets {
		if subnet.Type == hcloud.NetworkSubnetTypeVSwitch {
			ranges = append(ranges, ipnet.Prefix(subnet.IPRange))
		}
	}
	if len(ranges) == 0 {
		ranges = []netip.Prefix{ipnet.Prefix(n.IPRange)}
	}
	return &ranges
}

// Reserved are the addresses that nothing else in this network may have.
func (n *Network) Reserved(vSwitch netip.Prefix) []netip.Prefix {
	return Reserved(n.IPRange, n.Subnets, vSwitch)
}

// Reserved are the addresses that nothing else in a network may have: the subnets, which servers
// are attached to, the network's gateway, and every server's own one. In the subnet vSwitch, where
// dedicated servers and their pods are, it is the gateway alone; the zero Prefix: there is none.
func Reserved(network netip.Prefix, subnets []netip.Prefix, vSwitch netip.Prefix) []netip.Prefix {
	gatewayOf := func(p netip.Prefix) netip.Addr { return p.Masked().Addr().Next() }
	alone := func(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
	reserved := slices.Clone(subnets)
	if i := slices.Index(reserved, vSwitch); i >= 0 {
		reserved[i] = alone(gatewayOf(vSwitch))
	}
	serverGateway := netip.AddrFrom4([4]byte{172, 31, 1, 1})
	return append(reserved, alone(gatewayOf(network)), alone(serverGateway))
}

// ExposeRoutes has the network tell its routes to the vSwitch that is coupled with it.
func (n *Network) ExposeRoutes(ctx context.Context) error {
	return n.Exclusive(ctx, func(ctx context.Context) error {
		err := retry(ctx, write, func(ctx context.Context) error {
			expose := true
			_, _, err := n.client.api.Network.Update(ctx, n.ref(), hcloud.NetworkUpdateOpts{ExposeRoutesToVSwitch: &expose})
			return err
		})
		if err != nil {
			return fmt.Errorf("exposing the routes of network %d to its vSwitch: %w", n.ID, err)
		}
		n.Coupling.Exposed = true
		return nil
	})
}

// Exclusive runs one change of the network, or of what is attached to it, when
// no other runs; do returns when the change is over.
func (n *Network) Exclusive(ctx context.Context, do func(context.Context) error) error {
	return n.writer.run(ctx, do)
}

// writer lets one change through at a time.
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

func convertRoutes(rs []hcloud.NetworkRoute) []routes.Route {
	out := make([]routes.Route, len(rs))
	for i, r := range rs {
		out[i] = routes.Route{Dst: ipnet.Prefix(r.Destination), Via: ipnet.Addr(r.Gateway)}
	}
	return out
}
