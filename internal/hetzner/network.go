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

// ErrNoNetwork means that no network has the configured ID or name.
var ErrNoNetwork = errors.New("no such network")

// Network is one private network. The API accepts one change of a network at a time, so its
// writer serializes all changes of the network and of its attachments.
type Network struct {
	ID   int64
	Name string
	// IPRange, Subnets and Coupling are from the lookup.
	IPRange  netip.Prefix
	Subnets  []netip.Prefix
	Coupling routes.Coupling

	client *Client
	writer writer
	// Each read updates dedicated and vSwitches; asked is when the last read began.
	dedicated atomic.Pointer[[]netip.Prefix]
	vSwitches atomic.Pointer[map[netip.Prefix]int64]
	requested atomic.Pointer[time.Time]
}

// Network looks up a network by its ID or name.
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
	now := time.Now()
	n.requested.Store(&now)
	n.keep(found)
	return n
}

func (n *Network) look(ctx context.Context) (*hcloud.Network, error) {
	now := time.Now()
	n.requested.Store(&now)
	found, err := get(ctx, func(ctx context.Context) (*hcloud.Network, *hcloud.Response, error) {
		return n.client.api.Network.GetByID(ctx, n.ID)
	})
	if err != nil {
		return nil, fmt.Errorf("getting network %d: %w", n.ID, err)
	}
	if found == nil {
		return nil, fmt.Errorf("network %d: %w", n.ID, ErrNoNetwork)
	}
	if !ipnet.Prefix(found.IPRange).IsValid() { // without it, the routes may be missing too
		return nil, fmt.Errorf("getting network %d: the response is incomplete", n.ID)
	}
	n.keep(found)
	return found, nil
}

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

// DedicatedRanges returns the ranges of the dedicated servers' addresses as of the last read:
// the subnets of type vswitch, or if there is none, the network's own range.
func (n *Network) DedicatedRanges() []netip.Prefix { return *n.dedicated.Load() }

// VSwitch returns the ID of the vSwitch that was coupled with the subnet at the last read, or 0.
func (n *Network) VSwitch(subnet netip.Prefix) int64 { return (*n.vSwitches.Load())[subnet] }

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

// Reserved calls the function Reserved for this network.
func (n *Network) Reserved(vSwitch netip.Prefix) []netip.Prefix {
	return Reserved(n.IPRange, n.Subnets, vSwitch)
}

// Reserved returns the prefixes of a network that nothing else may use: its subnets, its gateway,
// and the default gateway of all servers. Of the subnet vSwitch, with dedicated servers and their
// pods, only the gateway is reserved; the zero Prefix means that there is no such subnet.
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

// ExposeRoutes makes the network expose its routes to the vSwitch that is coupled with it.
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

// Exclusive runs do, a change of the network or of its attachments, while no other change runs.
// do must not return before the change has ended.
func (n *Network) Exclusive(ctx context.Context, do func(context.Context) error) error {
	return n.writer.run(ctx, do)
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

func convertRoutes(rs []hcloud.NetworkRoute) []routes.Route {
	out := make([]routes.Route, len(rs))
	for i, r := range rs {
		out[i] = routes.Route{Dst: ipnet.Prefix(r.Destination), Via: ipnet.Addr(r.Gateway)}
	}
	return out
}
