package cni

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
)

// Desired is what the pods of this node need.
type Desired struct {
	// PodCIDRs are the node's own: one, or one of each family. None: no pod may
	// start.
	PodCIDRs []netip.Prefix
	// MTU is the smallest of its uplinks.
	MTU int
}

// networkName is the name of the network, and of host-local's folder for it.
const networkName = "underlay"

// plugins are the programs that the file names.
func plugins() []string { return []string{"ptp", "host-local", "portmap"} }

// leastMTUIPv6 is what every link that carries IPv6 must carry (RFC 8200,
// section 5); on a smaller one the kernel has no IPv6.
const leastMTUIPv6 = 1280

type conflist struct {
	CNIVersion string `json:"cniVersion"`
	Name       string `json:"name"`
	Plugins    []any  `json:"plugins"`
}

type ptp struct {
	Type string    `json:"type"`
	MTU  int       `json:"mtu"`
	IPAM hostLocal `json:"ipam"`
}

type hostLocal struct {
	Type    string           `json:"type"`
	DataDir string           `json:"dataDir"`
	Ranges  [][]addressRange `json:"ranges"`
	Routes  []route          `json:"routes"`
}

type addressRange struct {
	Subnet netip.Prefix `json:"subnet"`
}

type route struct {
	Destination netip.Prefix `json:"dst"`
}

type portmap struct {
	Type         string          `json:"type"`
	Capabilities map[string]bool `json:"capabilities"`
}

// render is the file's content. Masquerading is not ptp's: it would hide the
// addresses of pods from each other.
func render(want Desired, dataDir string) ([]byte, error) {
	if err := check(want); err != nil {
		return nil, err
	}
	ipam := hostLocal{Type: "host-local", DataDir: dataDir}
	for _, p := range want.PodCIDRs {
		// A list of its own for each family: a pod gets one address of each list.
		ipam.Ranges = append(ipam.Ranges, []addressRange{{p}})
		everywhere := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if p.Addr().Is6() {
			everywhere = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		ipam.Routes = append(ipam.Routes, route{everywhere})
	}
	content, err := json.MarshalIndent(conflist{
		CNIVersion: "1.0.0",
		Name:       networkName,
		Plugins: []any{
			ptp{Type: "ptp", MTU: want.MTU, IPAM: ipam},
			portmap{Type: "portmap", Capabilities: map[string]bool{"portMappings": true}},
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
