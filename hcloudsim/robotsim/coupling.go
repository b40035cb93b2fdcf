package robotsim

import (
	"net/netip"

	"github.com/underlay-ccm/underlay/hcloudsim"
)

// Coupled tells which subnets of a simulated cloud's networks are coupled with a
// vSwitch, for [Options.CloudSubnets].
func Coupled(cloud *hcloudsim.Simulator) func() []CloudSubnet {
	return func() []CloudSubnet {
		var found []CloudSubnet
		for _, n := range cloud.Networks() {
			for _, s := range n.Subnets {
				if s.VSwitchID == 0 {
					continue
				}
				// The cloud's simulator writes only what it has parsed.
				found = append(found, CloudSubnet{
					VSwitch: s.VSwitchID, Network: n.ID,
					Range: netip.MustParsePrefix(s.IPRange), Gateway: netip.MustParseAddr(s.Gateway),
				})
			}
		}
		return found
	}
}
