// Package wiring says to the pure packages what the configuration says, in their
// own words: for the program that works and for the one that looks at it, so that
// both mean the same. It decides nothing and reads nothing.
package wiring

import (
	"net/netip"

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
// no IPv6.
func Ranges(c config.Config) []routes.Range {
	var out []routes.Range
	for _, p := range c.IPAM.Pools {
		if !p.Own && p.Prefix.Addr().Is4() {
			out = append(out, routes.Range{Prefix: p.Prefix, NodeBits: p.NodeMask})
		}
	}
	return out
}

// Defaults are what Services get without annotations, in the network with this
// ID, 0 without one, where dedicated servers have addresses in these ranges.
func Defaults(c config.Config, network int64, dedicated []netip.Prefix) lb.Defaults {
	d := c.LoadBalancers.Defaults
	d.Cluster, d.Network, d.DedicatedRanges = c.ClusterName, network, dedicated
	return d
}
