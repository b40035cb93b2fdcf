//go:build linux

package wireguard

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/underlay-ccm/underlay/internal/ipnet"
	"github.com/underlay-ccm/underlay/internal/secret"
	"github.com/underlay-ccm/underlay/routes/agent"
)

// Device is one of this machine's WireGuard devices. It implements agent.Tunnels.
type Device struct {
	handle *netlink.Handle
	client *wgctrl.Client
	port   int
	name   string
	// keyPath is the file of the private key, which must outlive the machine's next start.
	keyPath string
	key     wgtypes.Key // zero until it is loaded
	// preshared is the pre-shared key of all peers, zero for none. If it is nil, peers keep theirs.
	preshared *wgtypes.Key
}

// Open prepares the use of a device; it changes nothing.
func Open(keyDir string, port int) (*Device, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("opening a netlink socket: %w", err)
	}
	client, err := wgctrl.New()
	if err != nil {
		handle.Close()
		return nil, fmt.Errorf("opening a socket for WireGuard: %w", err)
	}
	return &Device{
		handle: handle, client: client, port: port, name: agent.TunnelLink(port),
		keyPath: keyPath(keyDir, port),
	}, nil
}

// SetPreshared sets the pre-shared key of all peers, which is that of LoadPreshared. A device
// without this call leaves peers as they are: one that is being replaced still connects nodes that
// have not read another key yet.
func (d *Device) SetPreshared(key secret.Text) (err error) {
	d.preshared = new(wgtypes.Key)
	if text := key.Reveal(); text != "" {
		*d.preshared, err = parsePreshared(text)
	}
	return err
}

// Close closes the sockets.
func (d *Device) Close() error {
	d.handle.Close()
	return d.client.Close()
}

var errNoModule = errors.New("the kernel has no WireGuard; load the module wireguard, which Linux has since version 5.6, or let this machine join with a free route")

// State creates the device if it is missing, with the machine's key and port, and returns its
// state. A link of another kind that has the name and is a WireGuard device is used as well.
func (d *Device) State(context.Context) (agent.TunnelState, error) {
	link, err := d.link()
	if err != nil {
		return agent.TunnelState{}, err
	}
	if d.key == (wgtypes.Key{}) {
		key, err := loadKey(d.keyPath)
		if err != nil {
			return agent.TunnelState{}, err
		}
		d.key = key
	}
	device, err := d.client.Device(d.name)
	if err != nil {
		return agent.TunnelState{}, fmt.Errorf("reading the WireGuard device: %w", err)
	}
	if device.PrivateKey != d.key || device.ListenPort != d.port {
		own := wgtypes.Config{PrivateKey: &d.key, ListenPort: &d.port}
		if err := d.client.ConfigureDevice(d.name, own); err != nil {
			return agent.TunnelState{}, fmt.Errorf("setting the WireGuard device's key and port %d: %w; another program may use the port, see wireguardPort in the configuration", d.port, err)
		}
	}
	if err := d.writePreshared(device.Peers); err != nil {
		return agent.TunnelState{}, err
	}
	if link.Attrs().Flags&net.FlagUp == 0 {
		if err := d.handle.LinkSetUp(link); err != nil {
			return agent.TunnelState{}, fmt.Errorf("setting the WireGuard device up: %w", err)
		}
	}
	return d.state(link, device, d.key), nil
}

// writePreshared sets the pre-shared key of peers that have another.
func (d *Device) writePreshared(peers []wgtypes.Peer) error {
	var changes []wgtypes.PeerConfig
	for _, p := range peers {
		if d.preshared != nil && p.PresharedKey != *d.preshared {
			changes = append(changes, wgtypes.PeerConfig{
				PublicKey: p.PublicKey, UpdateOnly: true, PresharedKey: d.preshared,
			})
		}
	}
	return d.configure(changes)
}

func (d *Device) configure(peers []wgtypes.PeerConfig) error {
	if len(peers) == 0 {
		return nil
	}
	if err := d.client.ConfigureDevice(d.name, wgtypes.Config{Peers: peers}); err != nil {
		return fmt.Errorf("setting %d WireGuard peers: %w", len(peers), err)
	}
	return nil
}

// Observe returns the device's state, and changes nothing.
func (d *Device) Observe() agent.TunnelState {
	link, err := d.handle.LinkByName(d.name)
	if err != nil {
		return agent.TunnelState{Problem: fmt.Sprintf("there is no device %s: underlay-agent creates it, or its log has the reason", d.name)}
	}
	device, err := d.client.Device(d.name)
	if err != nil {
		return agent.TunnelState{Problem: fmt.Sprintf("reading the WireGuard device %s: %v", d.name, err)}
	}
	return d.state(link, device, device.PrivateKey)
}

func (d *Device) state(
	link netlink.Link, device *wgtypes.Device, key wgtypes.Key,
) agent.TunnelState {
	s := agent.TunnelState{
		PublicKey: key.PublicKey().String(), Port: d.port, Link: link.Attrs().Index,
		Peers: map[string]agent.TunnelPeerState{},
	}
	for _, p := range device.Peers {
		s.Peers[p.PublicKey.String()] = peerState(p)
	}
	return s
}

func peerState(p wgtypes.Peer) agent.TunnelPeerState {
	state := agent.TunnelPeerState{
		Handshake: p.LastHandshakeTime, Keepalive: p.PersistentKeepaliveInterval,
		Received: p.ReceiveBytes, Sent: p.TransmitBytes,
	}
	if p.LastHandshakeTime.Unix() <= 0 {
		state.Handshake = time.Time{}
	}
	if p.Endpoint != nil {
		at := p.Endpoint.AddrPort()
		state.Endpoint = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	}
	for _, n := range p.AllowedIPs {
		state.AllowedIPs = append(state.AllowedIPs, ipnet.Prefix(&n))
	}
	slices.SortFunc(state.AllowedIPs, netip.Prefix.Compare)
	return state
}

func (d *Device) link() (netlink.Link, error) {
	link, err := d.handle.LinkByName(d.name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		made := &netlink.Wireguard{LinkAttrs: netlink.LinkAttrs{Name: d.name}}
		switch err := d.handle.LinkAdd(made); {
		case errors.Is(err, unix.EOPNOTSUPP):
			return nil, errNoModule
		case err != nil && !errors.Is(err, unix.EEXIST):
			return nil, fmt.Errorf("creating the WireGuard device: %w", err)
		}
		link, err = d.handle.LinkByName(d.name)
	}
	if err != nil {
		return nil, fmt.Errorf("looking for the WireGuard device: %w", err)
	}
	return link, nil
}

// SetLink sets the device's MTU and addresses, and the routes into it that only pods use, and
// removes its other addresses and such routes.
func (d *Device) SetLink(_ context.Context, want agent.TunnelDevice) error {
	link, err := d.link()
	if err != nil {
		return err
	}
	if link.Attrs().MTU != want.MTU {
		if err := d.handle.LinkSetMTU(link, want.MTU); err != nil {
			return fmt.Errorf("setting the WireGuard device's MTU to %d: %w", want.MTU, err)
		}
	}
	if err := d.setAddresses(link, want.Addrs); err != nil {
		return err
	}
	if err := d.setPodRoutes(link, want.NodeAddrs); err != nil {
		return err
	}
	return d.setRules(want.PodCIDRs)
}

// reconcile deletes the existing values that are not wanted, and then adds the wanted ones that are
// missing. Each has a prefix of its own.
func reconcile[T any](
	what string, want []netip.Prefix, have []T, prefix func(T) netip.Prefix,
	remove func(T) error, add func(netip.Prefix) error,
) error {
	missing := make(map[netip.Prefix]bool, len(want))
	for _, p := range want {
		missing[p] = true
	}
	for _, h := range have {
		if missing[prefix(h)] {
			delete(missing, prefix(h))
			continue
		}
		err := remove(h)
		if err != nil && !errors.Is(err, unix.ESRCH) && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("deleting %s %s: %w", what, prefix(h), err)
		}
	}
	for _, p := range want {
		if !missing[p] {
			continue
		}
		if err := add(p); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("adding %s %s: %w", what, p, err)
		}
	}
	return nil
}

func (d *Device) setAddresses(link netlink.Link, addrs []netip.Prefix) error {
	have, err := d.handle.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("listing the WireGuard device's addresses: %w", err)
	}
	have = slices.DeleteFunc(have, func(a netlink.Addr) bool { return a.IP.IsLinkLocalUnicast() })
	return reconcile("the WireGuard device's address", addrs, have,
		func(a netlink.Addr) netip.Prefix { return ipnet.Prefix(a.IPNet) },
		func(a netlink.Addr) error { return d.handle.AddrDel(link, &a) },
		func(p netip.Prefix) error {
			return d.handle.AddrAdd(link, &netlink.Addr{IPNet: ipnet.Of(p), Flags: unix.IFA_F_NODAD})
		})
}

// Packets that pods send to other nodes use a table of their own: the nodes' packets, and with
// them the tunnels, go to the same addresses plainly.
const (
	podTable     = 201
	rulePriority = 32000 // before the main table
)

// setPodRoutes keeps the routes of podTable into the device.
func (d *Device) setPodRoutes(link netlink.Link, addrs []netip.Prefix) error {
	have, err := d.handle.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: podTable},
		netlink.RT_FILTER_TABLE)
	if err != nil {
		return fmt.Errorf("listing the routes into tunnels that pods use: %w", err)
	}
	index := link.Attrs().Index
	have = slices.DeleteFunc(have, func(r netlink.Route) bool {
		return r.Dst == nil || r.LinkIndex != index
	})
	return reconcile("the route that pods use to", addrs, have,
		func(r netlink.Route) netip.Prefix { return ipnet.Prefix(r.Dst) },
		func(r netlink.Route) error { return d.handle.RouteDel(&r) },
		func(p netip.Prefix) error {
			return d.handle.RouteReplace(&netlink.Route{
				Table: podTable, Dst: ipnet.Of(p), LinkIndex: index, Scope: netlink.SCOPE_LINK,
				Protocol: agent.Protocol,
			})
		})
}

// setRules keeps the rules by which packets from these prefixes use podTable.
func (d *Device) setRules(podCIDRs []netip.Prefix) error {
	have, err := d.handle.RuleListFiltered(netlink.FAMILY_ALL, &netlink.Rule{Table: podTable},
		netlink.RT_FILTER_TABLE)
	if err != nil {
		return fmt.Errorf("listing the routing rules: %w", err)
	}
	have = slices.DeleteFunc(have, func(r netlink.Rule) bool { return r.Protocol != agent.Protocol })
	return reconcile("the routing rule for packets from", podCIDRs, have,
		func(r netlink.Rule) netip.Prefix { return ipnet.Prefix(r.Src) },
		func(r netlink.Rule) error { return d.handle.RuleDel(&r) },
		func(p netip.Prefix) error {
			r := netlink.NewRule()
			r.Src, r.Table, r.Priority, r.Protocol = ipnet.Of(p), podTable, rulePriority, agent.Protocol
			return d.handle.RuleAdd(r)
		})
}

// SetPeers adds, updates or removes the peers. An allowed IP moves from one peer to another
// without a time in which neither has it.
func (d *Device) SetPeers(_ context.Context, peers []agent.TunnelPeer) error {
	changes := make([]wgtypes.PeerConfig, 0, len(peers))
	for _, p := range peers {
		key, err := wgtypes.ParseKey(p.PublicKey)
		if err != nil {
			return fmt.Errorf("the WireGuard key of node %s: %w", p.Node, err)
		}
		if p.Remove {
			changes = append(changes, wgtypes.PeerConfig{PublicKey: key, Remove: true})
			continue
		}
		set := wgtypes.PeerConfig{
			PublicKey: key, ReplaceAllowedIPs: p.Replace, PersistentKeepaliveInterval: &p.Keepalive,
			PresharedKey: d.preshared,
		}
		if p.Endpoint.IsValid() {
			set.Endpoint = net.UDPAddrFromAddrPort(p.Endpoint)
		}
		for _, a := range p.AllowedIPs {
			set.AllowedIPs = append(set.AllowedIPs, *ipnet.Of(a))
		}
		changes = append(changes, set)
	}
	return d.configure(changes)
}

// Remove deletes the device, if it exists, and its key. The last one's rules are deleted too.
func (d *Device) Remove(_ context.Context, last bool) error {
	if last {
		if err := d.setRules(nil); err != nil {
			return err
		}
	}
	link, err := d.handle.LinkByName(d.name)
	if err == nil {
		err = d.handle.LinkDel(link)
	}
	if err != nil && !errors.As(err, new(netlink.LinkNotFoundError)) {
		return fmt.Errorf("deleting the WireGuard device: %w", err)
	}
	if err := os.Remove(d.keyPath); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("deleting the WireGuard key: %w", err)
	}
	return nil
}
