//go:build linux

package packets

import (
	"net/netip"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/test/testenv/measured"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

// floatingPool is the configuration of the floating IPs for manager and agents.
const floatingPool = `addresses:
  pools:
    - {name: floating, mover: floating-ip, ranges: [203.0.113.7, "2001:db8:f::1"]}
`

// Floating IPs carry UDP to a Service with the client's own address, and follow a node that serves
// it: after a drain at once, after a failure within seconds. While the cloud rejects changes, the
// previous nodes keep serving them.
func TestFloatingIPs(t *testing.T) {
	f := start(t, netlab.Options{
		Machines: []string{"one", "two", "three"}, Settings: floatingPool,
		Cloud: hcloudsim.Options{ActionTime: 300 * time.Millisecond},
	})
	g := newGame(f, "203.0.113.7", "2001:db8:f::1")
	profile, err := measured.Profile()
	if err != nil {
		t.Fatal(err)
	}
	if refused := profile.Cloud.RefuseReassign; refused != nil && *refused {
		g.nowhere = 5 * time.Second // two actions, one after the other
	}
	g.leads = func() (servers []int64) {
		for _, ip := range f.Cloud.DataPlane().FloatingIPs {
			servers = append(servers, ip.Server)
		}
		return servers
	}
	g.refuse = func() (func(), error) {
		fault := hcloudsim.Fault{Match: "POST /floating_ips/{rest...}", Status: 403, Code: "forbidden", Times: -1}
		return f.Cloud.ClearFaults, f.Cloud.Inject(fault)
	}
	for _, seed := range []hcloudsim.FloatingIPSeed{
		{Name: "games-4", IP: netip.MustParsePrefix("203.0.113.7/32")},
		{Name: "games-6", Type: "ipv6", IP: netip.MustParsePrefix("2001:db8:f::/64")},
	} {
		if _, err := f.Cloud.CreateFloatingIP(seed); err != nil {
			t.Fatal(err)
		}
	}
	g.play(t)
}
