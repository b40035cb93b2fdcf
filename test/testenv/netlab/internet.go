//go:build linux

package netlab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

// Addresses outside of all machines.
var (
	// OutsideIPv4 and OutsideIPv6 belong to the external host.
	OutsideIPv4 = netip.AddrFrom4([4]byte{198, 51, 100, 2})
	OutsideIPv6 = netip.MustParseAddr("2001:db8:ffff::2")
)

// publicGateway is the gateway that servers have configured: it is in no prefix of theirs.
const publicGateway = "172.31.1.1"

// internet connects machines and the external host.
type internet struct {
	*router
	outside *netns.Namespace

	mu     sync.Mutex
	layout layout // without floating IPs and failover addresses
	// floating are the cloud's floating IPs, and servers the ports of its servers, by their IDs.
	floating []hcloudsim.PlaneFloatingIP
	servers  map[int64]string
	// failovers are Robot's failover addresses.
	failovers []failover
	// mtu is the largest packet that is forwarded between servers; 0: the MTUs of their interfaces
	// apply.
	mtu int
	err error // the first error that no caller returns
}

func newInternet(ctx context.Context) (*internet, error) {
	r, err := newRouter()
	if err != nil {
		return nil, err
	}
	outside, err := netns.Open()
	if err != nil {
		r.ns.Close()
		return nil, err
	}
	i := &internet{router: r, outside: outside, servers: map[int64]string{}}
	if err := netns.Connect(ctx, i.ns, "outside", outside, "eth0"); err != nil {
		return i, err
	}
	if err := i.batch(ctx, "address add 198.51.100.1/24 dev outside\naddress add 2001:db8:ffff::1/64 dev outside nodad\n"+
		"address add "+publicGateway+"/32 dev lo\n"); err != nil {
		return i, err
	}
	_, err = outside.Feed(ctx, fmt.Sprintf(
		"address add %s/24 dev eth0\naddress add %s/64 dev eth0 nodad\nroute add default via 198.51.100.1\nroute add default via 2001:db8:ffff::1\n",
		OutsideIPv4, OutsideIPv6), "ip", "-batch", "-")
	if err != nil {
		return i, err
	}
	i.layout = layout{routes: map[netip.Prefix]hop{}, sources: map[string][]netip.Prefix{
		"outside": {prefix("198.51.100.0/24"), prefix("2001:db8:ffff::/64")},
	}}
	return i, i.apply(ctx)
}

// limit sets the largest packet that is forwarded between servers, and between them and the
// outside, in bytes. It must be called before hosts are plugged in.
func (i *internet) limit(ctx context.Context, mtu int) error {
	i.mtu = mtu
	return i.batch(ctx, fmt.Sprintf("link set outside mtu %d\n", min(mtu, 1500)))
}

// failover is a failover address, or prefix, and the main address of the server that it is routed
// to.
type failover struct {
	net    netip.Prefix
	active netip.Addr
}

// apply configures the router by the current state.
func (i *internet) apply(ctx context.Context) error { return i.set(ctx, i.whole()) }

// whole is the layout with floating IPs and failover addresses. As in the cloud, the router
// resolves a floating IPv4 address by ARP at its server, which must answer itself; an IPv6 prefix
// is routed to the server. Addresses of a server without a cable have no route.
func (i *internet) whole() layout {
	out := layout{routes: maps.Clone(i.layout.routes), sources: maps.Clone(i.layout.sources)}
	if i.mtu != 0 {
		for dst, h := range out.routes {
			h.mtu = i.mtu
			out.routes[dst] = h
		}
	}
	for _, f := range i.floating {
		port, plugged := i.servers[f.Server]
		if !plugged {
			continue
		}
		h := hop{port: port, mtu: i.mtu}
		if f.Net.Addr().Is6() {
			h.via = netip.MustParseAddr("fe80::2")
		}
		out.routes[f.Net] = h
		out.sources[port] = append(slices.Clone(out.sources[port]), f.Net)
	}
	for _, f := range i.failovers {
		if h, plugged := i.main(f.active); plugged {
			out.routes[f.net] = h
			out.sources[h.port] = append(slices.Clone(out.sources[h.port]), f.net)
		}
	}
	return out
}

// main returns the route to a server by its main address. Failover addresses are routed there and
// are not resolved by ARP themselves.
func (i *internet) main(address netip.Addr) (hop, bool) {
	for p, h := range i.layout.routes {
		if !p.Contains(address) || p.Addr().Is6() && p.IsSingleIP() {
			continue
		}
		if address.Is4() {
			h.via = address
		}
		return h, true
	}
	return hop{}, false
}

// followFailovers routes failover addresses to their current servers. Calls are serialized, each
// with a fresh result of now, so that the newest state wins.
func (i *internet) followFailovers(ctx context.Context, now func() []failover) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.failovers = now()
	if err := i.apply(ctx); err != nil && i.err == nil {
		i.err = fmt.Errorf("failover addresses don't lead where they should: %w", err)
	}
}

// follow routes floating IPs to their current servers.
func (i *internet) follow(ctx context.Context, now []hcloudsim.PlaneFloatingIP) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if slices.Equal(i.floating, now) {
		return
	}
	i.floating = now
	if err := i.apply(ctx); err != nil && i.err == nil {
		i.err = fmt.Errorf("floating IPs don't lead where they should: %w", err)
	}
}

// serve records the port of a server of the cloud.
func (i *internet) serve(ctx context.Context, server int64, port string) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.servers[server] = port
	return i.apply(ctx)
}

// ForgetServers makes the internet's routers resolve the hardware addresses of all servers again,
// as they do from time to time. Packets that wait for a reply keep waiting.
func (f *Lab) ForgetServers(ctx context.Context) error {
	_, err := f.internet.ns.Run(ctx, "ip", "neighbor", "flush", "all",
		"nud", "reachable", "nud", "stale", "nud", "delay", "nud", "probe", "nud", "failed")
	return err
}

func (i *internet) failed() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.err
}

func (i *internet) close() {
	i.outside.Close()
	i.ns.Close()
}

// Public are the addresses that the internet routes to a host.
type Public struct {
	IPv4 netip.Addr
	// IPv6 is the host's own address, IPv6Prefix the prefix routed to it.
	IPv6       netip.Addr
	IPv6Prefix netip.Prefix
}

// commands configure the addresses of a host on a cable of its own; one family may be missing.
func (a Public) commands(name string) string {
	lines := fmt.Sprintf("address add fe80::2/64 dev %s nodad\n", name)
	if a.IPv4.IsValid() {
		lines += fmt.Sprintf("address add %[2]s/32 dev %[1]s\nroute add %[3]s dev %[1]s scope link\nroute add default via %[3]s dev %[1]s\n",
			name, a.IPv4, publicGateway)
	}
	if a.IPv6.IsValid() {
		lines += fmt.Sprintf("address add %[2]s/%[3]d dev %[1]s nodad\nroute add default via fe80::1 dev %[1]s\n",
			name, a.IPv6, a.IPv6Prefix.Bits())
	}
	return lines
}

// plug connects a host by a cable of its own, as a server in the cloud: no other host is on it, and
// both gateways are outside of its prefixes. port is the interface's name on the internet's side.
func (i *internet) plug(
	ctx context.Context, port string, ns *netns.Namespace, name string, a Public,
) error {
	if err := netns.Connect(ctx, ns, name, i.ns, port); err != nil {
		return err
	}
	lines := fmt.Sprintf("address add fe80::1/64 dev %s nodad\n", port)
	if i.mtu != 0 {
		lines += fmt.Sprintf("link set %s mtu %s\n", port, roomyMTU)
	}
	if err := i.batch(ctx, lines); err != nil {
		return err
	}
	if _, err := ns.Feed(ctx, a.commands(name), "ip", "-batch", "-"); err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.layout.sources[port] = nil
	if a.IPv4.IsValid() {
		own := netip.PrefixFrom(a.IPv4, 32)
		i.layout.routes[own] = hop{port: port}
		i.layout.sources[port] = append(i.layout.sources[port], own)
	}
	if a.IPv6.IsValid() {
		i.layout.routes[a.IPv6Prefix] = hop{port: port, via: netip.MustParseAddr("fe80::2")}
		i.layout.sources[port] = append(i.layout.sources[port], a.IPv6Prefix)
	}
	return i.apply(ctx)
}

// lead routes a further IPv6 address to a connected host, and no longer to the host that had it
// before.
func (i *internet) lead(
	ctx context.Context, port string, ns *netns.Namespace, name string, addr netip.Addr,
) error {
	own := netip.PrefixFrom(addr, addr.BitLen())
	if _, err := ns.Run(ctx, "ip", "address", "add", own.String(), "dev", name, "nodad"); err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.layout.routes[own] = hop{port: port, via: netip.MustParseAddr("fe80::2")}
	i.layout.sources[port] = append(i.layout.sources[port], own)
	return i.apply(ctx)
}

// unplug removes a host's cable, which may be removed already.
func (i *internet) unplug(ctx context.Context, port string) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	maps.DeleteFunc(i.layout.routes, func(_ netip.Prefix, h hop) bool { return h.port == port })
	delete(i.layout.sources, port)
	maps.DeleteFunc(i.servers, func(_ int64, p string) bool { return p == port })
	err := i.apply(ctx)
	_, _ = i.ns.Run(ctx, "ip", "link", "delete", port)
	return err
}

// The segment that bare metal shares.
const (
	segment       = "segment" // the bridge
	segmentIPv4   = "192.0.2.0/24"
	segmentIPv6   = "2001:db8:1::/64"
	segmentFirst4 = "192.0.2.1"
	segmentFirst6 = "2001:db8:1::1"
)

// addSegment creates the segment, with the internet as its gateway.
func (i *internet) addSegment(ctx context.Context) error {
	// Bridged frames must not pass the internet's firewall. A kernel without the setting never
	// passes them there.
	for _, family := range []string{"ip", "ip6"} {
		if err := i.ns.Sysctl("net/bridge/bridge-nf-call-"+family+"tables", "0"); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	err := i.batch(ctx, fmt.Sprintf(
		"link add %[1]s type bridge\nlink set %[1]s up\naddress add %[2]s/24 dev %[1]s\naddress add %[3]s/64 dev %[1]s nodad\n",
		segment, segmentFirst4, segmentFirst6))
	if err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.layout.sources[segment] = []netip.Prefix{prefix(segmentIPv4), prefix(segmentIPv6)}
	return i.apply(ctx)
}

// join connects a machine to the segment.
func (i *internet) join(
	ctx context.Context, port string, ns *netns.Namespace, name string, a Public,
) error {
	if err := netns.Connect(ctx, ns, name, i.ns, port); err != nil {
		return err
	}
	if err := i.batch(ctx, fmt.Sprintf("link set %s master %s\n", port, segment)); err != nil {
		return err
	}
	// Machines announce an address that they get, as network daemons allow: other hosts may still
	// have the previous owner in their caches.
	err := errors.Join(ns.Sysctl("net/ipv4/conf/"+name+"/arp_notify", "1"), ns.Sysctl("net/ipv6/conf/"+name+"/ndisc_notify", "1"))
	if err != nil {
		return err
	}
	if _, err = ns.Feed(ctx, segmentAddresses(name, a), "ip", "-batch", "-"); err != nil {
		return err
	}
	// The kernel assigns the address a moment after its interface is up.
	return wait.PollUntilContextTimeout(ctx, pollEvery, readyWithin, true,
		func(ctx context.Context) (bool, error) {
			local, err := ns.Run(ctx, "ip", "-6", "route", "show", "table", "local", "type", "local", a.IPv6.String())
			return local != "", err
		})
}

// segmentAddresses are the commands that configure a machine's addresses. The interface is switched
// on after it has its addresses, because the kernel announces them at that moment.
func segmentAddresses(name string, a Public) string {
	return fmt.Sprintf("address replace %[2]s/24 dev %[1]s\naddress replace %[3]s/64 dev %[1]s nodad\nlink set %[1]s up\n"+
		"route replace default via %[4]s dev %[1]s\nroute replace default via %[5]s dev %[1]s\n",
		name, a.IPv4, a.IPv6, segmentFirst4, segmentFirst6)
}

func prefix(text string) netip.Prefix { return netip.MustParsePrefix(text) }
