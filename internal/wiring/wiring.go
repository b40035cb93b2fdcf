// Package wiring says to the pure packages what the configuration says, in their
// own words: for the program that works and for the one that looks at it, so that
// both mean the same. It decides nothing and reads nothing.
package wiring

import (
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
// ID, 0 without one.
func Defaults(c config.Config, network int64) lb.Defaults {
	d := c.LoadBalancers.Defaults
	d.Cluster, d.Network = c.ClusterName, network
	return d
}
