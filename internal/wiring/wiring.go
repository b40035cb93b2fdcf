// Package wiring says to the pure packages what the configuration says, in their
// own words: for the program that works and for the one that looks at it, so that
// both mean the same. It decides nothing and reads nothing.
package wiring

import (
	"net/netip"
	"slices"

	"github.com/underlay-ccm/underlay/internal/cloud"
	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/ipam"
	"github.com/underlay-ccm/underlay/lb"
	"github.com/underlay-ccm/underlay/routes"
)

// Pools are the pools in their order.
func Pools(c config.Config) []ipam.PoolConfig {
	var out []ipam.PoolConfig
	for _, p := range c.IPAM.Pools {
		state := ipam.Active
		if p.Draining {
			state = ipam.Draining
		}
		out = append(out, ipam.PoolConfig{Name: p.Name, Prefix: p.Prefix, NodeMask: p.NodeMask, State: state, Own: p.Own})
	}
	return out
}

// Ranges are the pools whose prefixes are routed through the network, which carries
// no IPv6. Those inside the vSwitch's subnet need no routes.
func Ranges(c config.Config) []routes.Range {
	var out []routes.Range
	for _, p := range c.IPAM.Pools {
		if !p.Own && !p.VSwitch && p.Prefix.Addr().Is4() {
			out = append(out, routes.Range{Prefix: p.Prefix, NodeBits: p.NodeMask})
		}
	}
	return out
}

// VSwitch is where the pools are whose prefixes need no routes.
func VSwitch(c config.Config) routes.VSwitch {
	v := routes.VSwitch{Subnet: c.VSwitch.Subnet}
	for _, p := range c.IPAM.Pools {
		if p.VSwitch {
			v.Ranges = append(v.Ranges, routes.Range{Prefix: p.Prefix, NodeBits: p.NodeMask})
		}
	}
	return v
}

// Defaults are what Services get without annotations, in the network with this
// ID, 0 without one, where dedicated servers have addresses in these ranges.
func Defaults(c config.Config, network int64, dedicated []netip.Prefix) lb.Defaults {
	d := c.LoadBalancers.Defaults
	d.Cluster, d.Network, d.DedicatedRanges = c.ClusterName, network, dedicated
	d.OwnPools = slices.ContainsFunc(c.IPAM.Pools, func(p config.Pool) bool { return p.Own })
	return d
}

// Machines are those of the inventory without a cloud.
func Machines(c config.Config) []cloud.Machine {
	var out []cloud.Machine
	for _, m := range c.Inventory {
		out = append(out, cloud.Machine{Name: m.Name, Addresses: m.Addresses, Zone: m.Zone, Region: m.Region, Type: m.Type})
	}
	return out
}

// Dedicated are the dedicated servers of the inventory beside a cloud.
func Dedicated(c config.Config) []cloud.Dedicated {
	var out []cloud.Dedicated
	for _, m := range c.Inventory {
		out = append(out, cloud.Dedicated{
			Number: int64(m.Number), Name: m.Name, Addresses: m.Addresses, Zone: m.Zone, Region: m.Region, Type: m.Type,
		})
	}
	return out
}
