// Package wiring converts the configuration to the types of the pure packages, so that the manager
// and diagnostic tools interpret it the same way. It makes no decisions and reads nothing.
package wiring

import (
	"net/netip"
	"slices"

	"github.com/spf13/pflag"

	"github.com/underlay-ccm/underlay/internal/cloud"
	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/ipam"
	"github.com/underlay-ccm/underlay/lb"
	"github.com/underlay-ccm/underlay/routes"
)

// Flags returns the flags that were given on a command line. 0 is upstream's default of a length.
func Flags(fs *pflag.FlagSet) config.Flags {
	given := config.Flags{}
	fs.Visit(func(f *pflag.Flag) {
		if text := f.Value.String(); text != "0" {
			given["--"+f.Name] = text
		}
	})
	return given
}

// Pools returns the pools in their order.
func Pools(c config.Config) []ipam.PoolConfig {
	var out []ipam.PoolConfig
	for _, p := range c.IPAM.Pools {
		state := ipam.Active
		if p.Draining {
			state = ipam.Draining
		}
		out = append(out, ipam.PoolConfig{
			Name: p.Name, Prefix: p.Prefix, NodeMask: p.NodeMask, State: state, Own: p.Own,
		})
	}
	return out
}

// Ranges returns the pools with prefixes that are routed through the network, which supports no
// IPv6. Pools inside the vSwitch's subnet need no routes.
func Ranges(c config.Config) []routes.Range {
	var out []routes.Range
	for _, p := range c.IPAM.Pools {
		if !p.Own && !p.VSwitch && p.Prefix.Addr().Is4() {
			out = append(out, routes.Range{Prefix: p.Prefix, NodeBits: p.NodeMask})
		}
	}
	return out
}

// VSwitch returns the subnet and its pools, which need no routes.
func VSwitch(c config.Config) routes.VSwitch {
	v := routes.VSwitch{Subnet: c.VSwitch.Subnet}
	for _, p := range c.IPAM.Pools {
		if p.VSwitch {
			v.Ranges = append(v.Ranges, routes.Range{Prefix: p.Prefix, NodeBits: p.NodeMask})
		}
	}
	return v
}

// Tunnels returns whether tunnels connect nodes.
func Tunnels(c config.Config) routes.Tunnels {
	return routes.Tunnels{Enabled: c.WireGuard.Enabled(), Required: c.WireGuard.Required()}
}

// Defaults returns the load balancer settings of Services without annotations. network is the ID
// of the network, or 0; dedicated are the ranges of dedicated servers' addresses.
func Defaults(c config.Config, network int64, dedicated []netip.Prefix) lb.Defaults {
	d := c.LoadBalancers.Defaults
	d.Cluster, d.Network, d.DedicatedRanges = c.ClusterName, network, dedicated
	d.OwnPools = slices.ContainsFunc(c.IPAM.Pools, func(p config.Pool) bool { return p.Own })
	return d
}

// Machines returns the machines of the inventory: without a cloud all that exist, with a cloud
// the dedicated servers.
func Machines(c config.Config) []cloud.Machine {
	var out []cloud.Machine
	for _, m := range c.Inventory {
		out = append(out, cloud.Machine{
			Dedicated: m.Number != 0, ID: int64(m.Number),
			Name: m.Name, Addresses: m.Addresses, Zone: m.Zone, Region: m.Region, Type: m.Type,
		})
	}
	return out
}
