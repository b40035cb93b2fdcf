package robotsim

import (
	"net/netip"

	"github.com/underlay-ccm/underlay/hcloudsim"
)

// Coupled returns a function for [Options.CloudSubnets] that lists the subnets of a simulated
// cloud's networks that are coupled with a vSwitch.
func Coupled(cloud *hcloudsim.Simulator) func() []CloudSubnet {
	return func() []CloudSubnet {
		var found []CloudSubnet
		for _, n := range cloud.Networks() {
			for _, s := range n.Subnets {
				if s.VSwitchID == 0 {
					continue
				}
				// The cloud's simulator writes only addresses that it has parsed.
				found = append(found, CloudSubnet{
					VSwitch: s.VSwitchID, Network: n.ID,
					Range: netip.MustParsePrefix(s.IPRange), Gateway: netip.MustParseAddr(s.Gateway),
				})
			}
		}
		return found
	}
}
