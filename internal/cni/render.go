package cni

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
)

// Desired is the pod network of this node.
type Desired struct {
	// PodCIDRs has at most one of each family. If it is empty, no pod may start.
	PodCIDRs []netip.Prefix
	// MTU is the smallest MTU of the uplinks, in bytes.
	MTU int
}

// networkName is also the name of host-local's folder for the network.
const networkName = "underlay"

func plugins() []string { return []string{"ptp", "host-local", "portmap"} }

// leastMTUIPv6 is IPv6's minimum MTU (RFC 8200, section 5); below it the kernel has no IPv6.
const leastMTUIPv6 = 1280

type object map[string]any

// render returns the content of the file. ptp must not masquerade, to keep pods' source addresses.
func render(want Desired, dataDir string) ([]byte, error) {
	if err := check(want); err != nil {
		return nil, err
	}
	var ranges [][]object
	var routes []object
	for _, p := range want.PodCIDRs {
		// One range set per family: a pod gets an address from each range set.
		ranges = append(ranges, []object{{"subnet": p}})
		everywhere := "0.0.0.0/0"
		if p.Addr().Is6() {
			everywhere = "::/0"
		}
		routes = append(routes, object{"dst": everywhere})
	}
	ipam := object{"type": "host-local", "dataDir": dataDir, "ranges": ranges, "routes": routes}
	content, err := json.MarshalIndent(object{
		"cniVersion": "1.0.0", "name": networkName,
		"plugins": []object{
			{"type": "ptp", "mtu": want.MTU, "ipam": ipam},
			{"type": "portmap", "capabilities": object{"portMappings": true}},
		},
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("rendering the CNI configuration: %w", err)
	}
	return append(content, '\n'), nil
}

func check(want Desired) error {
	ipv6 := func(p netip.Prefix) bool { return p.Addr().Is6() }
	switch n := len(want.PodCIDRs); {
	case n == 0 || n > 2 || n == 2 && ipv6(want.PodCIDRs[0]) == ipv6(want.PodCIDRs[1]):
		return fmt.Errorf("podCIDRs %v: a node's pods take one, or one of each family; delete this Node and let it join again", want.PodCIDRs)
	case want.MTU <= 0:
		return fmt.Errorf("an MTU of %d: the smallest of the uplinks' is wanted", want.MTU)
	case want.MTU < leastMTUIPv6 && slices.ContainsFunc(want.PodCIDRs, ipv6):
		return fmt.Errorf("an MTU of %d, the smallest of the uplinks', carries no IPv6: raise it to %d or more, or give the Node no IPv6 podCIDR", want.MTU, leastMTUIPv6)
	}
	return nil
}
