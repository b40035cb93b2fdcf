//go:build linux

package netlab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/underlay-ccm/underlay/hcloudsim/robotsim"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

// The vSwitch of dedicated servers: a bridge at the cloud router, which is its
// gateway, in a subnet of the cloud's network.
const (
	vSwitch        = "vswitch" // the bridge, and each server's interface on it
	vSwitchSubnet  = "10.1.0.0/16"
	vSwitchGateway = "10.1.0.1"
	vSwitchPods    = "10.1.128.0/17"
	vSwitchMTU     = "1400"
	// dedicatedLabel is on the Nodes of dedicated servers.
	dedicatedLabel = "node.underlay.dev/dedicated"
)

// vSwitchConfig are the lines of the configuration file before the pools, and the lines among them.
const (
	vSwitchConfig = "vswitch: {subnet: " + vSwitchSubnet + ", exposeRoutes: true}\n"
	vSwitchPool   = "  - {name: dedicated, source: vswitch, cidr: " + vSwitchPods + ", nodeMask: 24, nodeSelector: " + dedicatedLabel + "=true}\n"
)

// addVSwitch creates the vSwitch.
func (c *cloudRouter) addVSwitch(ctx context.Context, g Gateway) error {
	// Bridged frames must not pass the router's firewall. A kernel without the setting never passes
	// them there.
	for _, family := range []string{"ip", "ip6"} {
		if err := c.ns.Sysctl("net/bridge/bridge-nf-call-"+family+"tables", "0"); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	err := c.batch(ctx, fmt.Sprintf("link add %[1]s type bridge\nlink set %[1]s mtu %[2]s up\naddress add %[3]s/%[4]d dev %[1]s\n",
		vSwitch, c.vSwitchWidth(), vSwitchGateway, prefix(vSwitchSubnet).Bits()))
	if err != nil {
		return err
	}
	if _, err := c.ns.Feed(ctx, g.script(), "nft", "-f", "-"); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.coupled[vSwitch] = prefix(vSwitchSubnet)
	return c.set(ctx, c.layout())
}

// join connects a dedicated server to the vSwitch.
func (c *cloudRouter) join(
	ctx context.Context, port string, ns *netns.Namespace, addr netip.Addr,
) error {
	if err := netns.Connect(ctx, ns, vSwitch, c.ns, port); err != nil {
		return err
	}
	if err := c.batch(ctx, fmt.Sprintf("link set %s mtu %s master %s\n", port, c.vSwitchWidth(), vSwitch)); err != nil {
		return err
	}
	_, err := ns.Feed(ctx, fmt.Sprintf("link set %[1]s mtu %[2]s\n%[3]s", vSwitch, vSwitchMTU, vSwitchAddresses(addr)), "ip", "-batch", "-")
	return err
}

// vSwitchWidth is the MTU of the vSwitch's ports.
func (c *cloudRouter) vSwitchWidth() string {
	if c.path.vSwitchMTU != 0 {
		return roomyMTU // the route limits the size of packets
	}
	return vSwitchMTU
}

// leave removes a dedicated server's cable to the vSwitch.
func (c *cloudRouter) leave(ctx context.Context, port string) error {
	_, err := c.ns.Run(ctx, "ip", "link", "delete", port)
	return err
}

// vSwitchAddresses are the commands that configure a dedicated server's address, with a route to
// cloud servers but none to their pods.
func vSwitchAddresses(addr netip.Addr) string {
	return fmt.Sprintf("address replace %[2]s/%[3]d dev %[1]s\nlink set %[1]s up\nroute replace %[4]s via %[5]s dev %[1]s\n",
		vSwitch, addr, prefix(vSwitchSubnet).Bits(), cluster.SubnetRange, vSwitchGateway)
}

// RentDedicated creates a dedicated server, in the account at Robot and on the vSwitch, that is not
// in the cluster yet.
func (f *Lab) RentDedicated(ctx context.Context, name string) (*Machine, error) {
	return f.rent(ctx, &Machine{Name: name, Dedicated: true})
}

// AddDedicated joins dedicated servers with these names concurrently, and returns when they are
// ready for pods.
func (f *Lab) AddDedicated(ctx context.Context, names ...string) error {
	return f.add(ctx, f.RentDedicated, names)
}

// plugDedicated gives a dedicated server its addresses. No API has those on the vSwitch.
func (m *Machine) plugDedicated(ctx context.Context) error {
	// The simulated cloud has no record of them, and must not assign the same addresses to others.
	m.Public.IPv6Prefix = prefix(fmt.Sprintf("2001:db8:d:%x::/64", m.number))
	m.Public.IPv6 = m.Public.IPv6Prefix.Addr().Next()
	m.RobotNumber = int64(firstDedicated + m.number)
	err := m.lab.robot.rent(ctx, robotsim.ServerSeed{
		Number: m.RobotNumber, Name: m.Name, IPv4: m.Public.IPv4, IPv6: m.Public.IPv6Prefix,
	})
	if err != nil {
		return err
	}
	subnet := prefix(vSwitchSubnet).Addr().As4()
	m.Private = netip.AddrFrom4([4]byte{subnet[0], subnet[1], 0, byte(10 + m.number)})
	return m.connect(ctx)
}

// SetVSwitch switches a dedicated server's interface on the vSwitch off, which removes all its
// routes there, or on again.
func (m *Machine) SetVSwitch(ctx context.Context, up bool) error {
	if !up {
		_, err := m.Namespace.Run(ctx, "ip", "link", "set", vSwitch, "down")
		return err
	}
	_, err := m.Namespace.Feed(ctx, vSwitchAddresses(m.Private), "ip", "-batch", "-")
	return err
}
