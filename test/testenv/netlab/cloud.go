//go:build linux

package netlab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"sync"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

const (
	// privateMTU is the MTU of servers' interfaces in the cloud's networks.
	privateMTU = "1450"
	// roomyMTU is the MTU of a router's ports where its routes limit the size of packets.
	roomyMTU = "9216"
)

// Member is the owner of a port at the cloud router: the simulator's kind, server or load_balancer,
// and ID.
type Member struct {
	Kind string
	ID   int64
}

func (m Member) port() string { return fmt.Sprintf("%.1s%d", m.Kind, m.ID) }

// cloudRouter is the private network's gateway. It follows the simulator.
type cloudRouter struct {
	*router
	gateway netip.Addr

	mu    sync.Mutex // held while it follows: the last state must win
	ports map[Member]bool
	plane hcloudsim.DataPlane
	path  path
	// coupled are the subnets of vSwitches, by their ports.
	coupled map[string]netip.Prefix
	err     error // the first error that no caller returns
}

// path describes how packets are treated beside being forwarded. The zero value is the behavior
// that Underlay's documentation assumes.
type path struct {
	// mtu and vSwitchMTU are the largest packets that are forwarded between members, and between
	// members and a vSwitch; 0: the MTUs of the ports, which are then those of the documented
	// interfaces.
	mtu, vSwitchMTU int
	// anySource forwards packets of members regardless of their source, vSwitchAnySource those from
	// a vSwitch.
	anySource, vSwitchAnySource bool
}

func newCloudRouter(ctx context.Context, gateway netip.Addr) (*cloudRouter, error) {
	r, err := newRouter()
	if err != nil {
		return nil, err
	}
	c := &cloudRouter{
		router: r, gateway: gateway, ports: map[Member]bool{}, coupled: map[string]netip.Prefix{},
	}
	// No single port has the address: the router answers ARP for the gateway on each of them.
	if _, err := c.ns.Run(ctx, "ip", "address", "add", gateway.String()+"/32", "dev", "lo"); err != nil {
		return nil, err
	}
	return c, nil
}

// follow makes the router forward by the current state of the network.
func (c *cloudRouter) follow(ctx context.Context, now hcloudsim.DataPlane) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.plane = now
	if err := c.set(ctx, c.layout()); err != nil && c.err == nil {
		c.err = fmt.Errorf("the cloud router doesn't follow: %w", err)
	}
}

// fail keeps the first error that its caller can't return.
func (c *cloudRouter) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
}

// failed returns the error that fail kept.
func (c *cloudRouter) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// plug connects a member: its namespace gets an interface with the address that the network
// assigned.
func (c *cloudRouter) plug(
	ctx context.Context, m Member, ns *netns.Namespace, name string, addr netip.Addr,
	network netip.Prefix,
) error {
	if err := netns.Connect(ctx, ns, name, c.ns, m.port()); err != nil {
		return err
	}
	width := privateMTU
	if c.path.mtu != 0 {
		width = roomyMTU
	}
	if _, err := c.ns.Run(ctx, "ip", "link", "set", m.port(), "mtu", width); err != nil {
		return err
	}
	_, err := ns.Feed(ctx, fmt.Sprintf(
		"link set %[1]s mtu %[2]s\naddress add %[3]s/32 dev %[1]s\nroute add %[4]s dev %[1]s scope link\nroute add %[5]s via %[4]s dev %[1]s\n",
		name, privateMTU, addr, c.gateway, network), "ip", "-batch", "-")
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ports[m] = true
	return c.set(ctx, c.layout())
}

// unplug removes a member's cable, which may be removed already.
func (c *cloudRouter) unplug(ctx context.Context, m Member) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.ports, m)
	err := c.set(ctx, c.layout())
	_, _ = c.ns.Run(ctx, "ip", "link", "delete", m.port())
	return err
}

// layout is derived from the network's members and routes. Members without a cable, and routes to
// them, are left out.
func (c *cloudRouter) layout() layout {
	out := layout{routes: map[netip.Prefix]hop{}, sources: map[string][]netip.Prefix{}}
	c.addCoupled(&out)
	for _, network := range c.plane.Networks {
		owners := map[netip.Addr]string{}
		for _, m := range network.Members {
			port := Member{m.Kind, m.ID}
			if !c.ports[port] {
				continue
			}
			for _, addr := range append([]netip.Addr{m.IP}, m.Aliases...) {
				own := netip.PrefixFrom(addr, addr.BitLen())
				owners[addr] = port.port()
				out.routes[own] = hop{port: port.port(), mtu: c.path.mtu}
				out.sources[port.port()] = append(out.sources[port.port()], own)
			}
		}
		for _, r := range network.Routes {
			if port, ok := owners[r.Gateway]; ok {
				out.routes[r.Destination] = hop{port: port, via: r.Gateway, mtu: c.path.mtu}
				out.sources[port] = append(out.sources[port], r.Destination)
			}
		}
	}
	if c.path.anySource {
		for m := range c.ports {
			out.sources[m.port()] = []netip.Prefix{anywhere}
		}
	}
	return out
}

var anywhere = prefix("0.0.0.0/0")

// addCoupled adds the routes and sources of vSwitches.
func (c *cloudRouter) addCoupled(out *layout) {
	for port, subnet := range c.coupled {
		out.sources[port] = []netip.Prefix{subnet}
		if c.path.vSwitchAnySource {
			out.sources[port] = []netip.Prefix{anywhere}
		}
		if c.path.vSwitchMTU != 0 {
			out.routes[subnet] = hop{port: port, mtu: c.path.vSwitchMTU}
			if out.largest == nil {
				out.largest = map[string]int{}
			}
			out.largest[port] = c.path.vSwitchMTU
		}
	}
}

// Err returns an error if the lab itself has failed, so that packets may not follow the simulated
// cloud. A test that would not fail otherwise checks it.
func (f *Lab) Err() error {
	if f.cloud == nil {
		return nil
	}
	return errors.Join(f.cloud.failed(), f.internet.failed())
}

// Dropped counts the packets that the cloud router has dropped because of their source since its
// table was last changed.
func (f *Lab) Dropped(ctx context.Context) (int, error) {
	out, err := f.cloud.ns.Run(ctx, "nft", "list", "table", "inet", table)
	if err != nil {
		return 0, err
	}
	found := counter.FindStringSubmatch(out)
	if found == nil {
		return 0, fmt.Errorf("no counter in %s", out)
	}
	return strconv.Atoi(found[1])
}
