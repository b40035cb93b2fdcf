package experiment

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/internal/ipnet"
)

// Network is a throw-away network with one subnet of type cloud.
type Network struct {
	ID     int64
	Range  netip.Prefix // of the network; what is outside of Subnet is free for routes and subnets
	Subnet netip.Prefix
	// Gateway is the network's, where servers send what is for others.
	Gateway netip.Addr
}

func (n *Network) ref() *hcloud.Network { return &hcloud.Network{ID: n.ID} }

// numbered is a network 10.<n>.0.0/16 whose subnet is its first /24.
func numbered(n byte) Network {
	base := netip.AddrFrom4([4]byte{10, n, 0, 0})
	return Network{
		Range: netip.PrefixFrom(base, 16), Subnet: netip.PrefixFrom(base, 24), Gateway: base.Next(),
	}
}

// Network returns the shared network.
func (b *Bench) Network(ctx context.Context) (*Network, error) {
	return b.shared.network.get(func() (*Network, error) {
		return b.newNetwork(ctx, "network", numbered(200))
	})
}

// Scratch returns a network in which nothing is, for experiments by the API that attach, detach
// and remove. They leave it as it was.
func (b *Bench) Scratch(ctx context.Context) (*Network, error) {
	return b.shared.scratch.get(func() (*Network, error) {
		return b.newNetwork(ctx, "second-network", numbered(201))
	})
}

func (b *Bench) newNetwork(ctx context.Context, name string, n Network) (*Network, error) {
	b.say("making a %s", strings.ReplaceAll(name, "-", " "))
	zone, err := b.zone(ctx)
	if err != nil {
		return nil, err
	}
	opts := hcloud.NetworkCreateOpts{
		Name: b.Project.Name(name), Labels: b.Project.Labels(), IPRange: ipnet.Of(n.Range),
		Subnets: []hcloud.NetworkSubnet{b.cloudSubnet(&n)},
	}
	network, err := created(ctx, b, func() (*hcloud.Network, error) {
		network, _, err := b.client().Network.Create(ctx, opts)
		return network, err
	})
	if err != nil {
		return nil, fmt.Errorf("making a %s in zone %s: %w", strings.ReplaceAll(name, "-", " "), zone, err)
	}
	n.ID = network.ID
	return &n, nil
}

// cloudSubnet is the network's subnet, in the zone that was asked for before.
func (b *Bench) cloudSubnet(n *Network) hcloud.NetworkSubnet {
	return hcloud.NetworkSubnet{
		Type: hcloud.NetworkSubnetTypeCloud, IPRange: ipnet.Of(n.Subnet), NetworkZone: b.shared.zone,
	}
}

// zone is that of the location.
func (b *Bench) zone(ctx context.Context) (hcloud.NetworkZone, error) {
	if b.shared.zone != "" {
		return b.shared.zone, nil
	}
	at, _, err := b.client().Location.GetByName(ctx, b.Location)
	switch {
	case err != nil:
		return "", fmt.Errorf("looking for location %s: %w", b.Location, err)
	case at == nil:
		return "", fmt.Errorf("location %q does not exist", b.Location)
	}
	b.shared.zone = at.NetworkZone
	return at.NetworkZone, nil
}

// LoadBalancer is a throw-away load balancer in the shared network. Services and targets are added
// by those who need them, and removed again by them.
type LoadBalancer struct {
	ID               int64
	Public4, Public6 netip.Addr
	Private          netip.Addr
}

func (l *LoadBalancer) ref() *hcloud.LoadBalancer { return &hcloud.LoadBalancer{ID: l.ID} }

// LoadBalancer returns the shared load balancer.
func (b *Bench) LoadBalancer(ctx context.Context) (*LoadBalancer, error) {
	return b.shared.balancer.get(func() (*LoadBalancer, error) { return b.newLoadBalancer(ctx) })
}

func (b *Bench) newLoadBalancer(ctx context.Context) (*LoadBalancer, error) {
	n, err := b.Network(ctx)
	if err != nil {
		return nil, err
	}
	b.say("making a load balancer (%s in %s)", b.LoadBalancerType, b.Location)
	balancer, err := b.createLoadBalancer(ctx, "load-balancer", hcloud.LoadBalancerCreateOpts{
		Location: &hcloud.Location{Name: b.Location}, Network: n.ref(),
	})
	if err != nil {
		return nil, fmt.Errorf("making a load balancer (%s in %s): %w",
			b.LoadBalancerType, b.Location, err)
	}
	var l LoadBalancer
	err = until(ctx, "the load balancer is not in its network", func() (bool, error) {
		now, _, err := b.client().LoadBalancer.GetByID(ctx, balancer.ID)
		if err != nil {
			return false, err
		}
		if now == nil {
			return false, errGone
		}
		l = LoadBalancer{
			ID: now.ID, Public4: ipnet.Addr(now.PublicNet.IPv4.IP), Public6: ipnet.Addr(now.PublicNet.IPv6.IP),
		}
		for _, at := range now.PrivateNet {
			if at.Network != nil && at.Network.ID == n.ID {
				l.Private = ipnet.Addr(at.IP)
			}
		}
		return l.Private.IsValid(), nil
	})
	if err != nil {
		return nil, err
	}
	return &l, nil
}
