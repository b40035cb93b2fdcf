package hcloudsim

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

const kindServer = "server"

// The simulated states of a server.
const (
	statusInitializing = "initializing"
	statusStarting     = "starting"
	statusRunning      = "running"
	statusStopping     = "stopping"
	statusOff          = "off"
	statusMigrating    = "migrating"
	statusRebuilding   = "rebuilding"
)

// serverStatuses are all states of the API.
func serverStatuses() []string {
	return []string{
		statusInitializing, statusStarting, statusRunning, statusStopping, statusOff,
		statusMigrating, statusRebuilding, "deleting", "unknown",
	}
}

type server struct {
	base
	status     string
	serverType schema.ServerType
	location   schema.Location
	image      *schema.Image
	userData   string
	addresses  addressPair
	private    []*attachment
	disk       int // in GB; smaller than the type's after a change of type that keeps it
	group      int64
	backups    bool
	rescue     bool // the next boot starts the rescue system
	iso        *schema.ISO
}

// ipv4 returns the public address, or zero.
func (s *server) ipv4() netip.Addr {
	if k := s.addresses.ipv4; k != nil {
		return k.net.Addr()
	}
	return netip.Addr{}
}

// ipv6 returns the public /64, or zero.
func (s *server) ipv6() netip.Prefix {
	if k := s.addresses.ipv6; k != nil {
		return k.net
	}
	return netip.Prefix{}
}

func (s *server) ref() ref { return ref{kindServer, s.id} }

func (s *server) attachmentTo(network int64) *attachment {
	for _, a := range s.private {
		if a.network == network {
			return a
		}
	}
	return nil
}

func (s *server) detach(network int64) {
	s.private = slices.DeleteFunc(s.private, func(a *attachment) bool { return a.network == network })
}

// publicAddresses allocates addresses from the ranges reserved for benchmarks (RFC 2544) and
// documentation (RFC 3849), so that test traffic can't reach real hosts.
type publicAddresses struct{ count uint32 }

func (p *publicAddresses) next() (netip.Addr, netip.Prefix) {
	p.count++
	n := p.count
	ipv4 := netip.AddrFrom4([4]byte{198, 18 + byte(n>>16&1), byte(n >> 8), byte(n)})
	ipv6 := netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
	return ipv4, netip.PrefixFrom(ipv6, 64)
}

// serverBody is the schema's type with nullable public addresses.
type serverBody struct {
	schema.Server
	PublicNet publicNet `json:"public_net"`
}

type publicNet struct {
	IPv4        *schema.ServerPublicNetIPv4 `json:"ipv4"`
	IPv6        *schema.ServerPublicNetIPv6 `json:"ipv6"`
	FloatingIPs []int64                     `json:"floating_ips"`
	Firewalls   []schema.ServerFirewall     `json:"firewalls"`
}

func (p *project) renderServer(s *server) schema.Server {
	var traffic uint64
	out := schema.Server{
		ID: s.id, Name: s.name, Status: s.status, Created: s.created,
		PublicNet: schema.ServerPublicNet{
			FloatingIPs: p.floatingOn(s), Firewalls: p.firewallsOn(s),
		},
		PrivateNet: []schema.ServerPrivateNet{}, ServerType: s.serverType,
		IncludedTraffic: 20 << 40, OutgoingTraffic: &traffic, IngoingTraffic: &traffic,
		Locked: p.busy(s.ref()), Location: s.location, Image: s.image,
		Protection: schema.ServerProtection{Delete: s.protected, Rebuild: s.protected},
		Labels:     cloneLabels(s.labels), Volumes: p.volumesOn(s), LoadBalancers: p.targetedBy(s),
		PrimaryDiskSize: s.disk, RescueEnabled: s.rescue, ISO: s.iso,
	}
	if s.backups {
		window := backupWindow
		out.BackupWindow = &window
	}
	if g, ok := p.groups.get(s.group); ok {
		shown := p.renderPlacementGroup(g)
		out.PlacementGroup = &shown
	}
	if k := s.addresses.ipv4; k != nil {
		ip := k.net.Addr()
		out.PublicNet.IPv4 = schema.ServerPublicNetIPv4{ID: k.id, IP: ip.String(), DNSPtr: k.pointers.of(ip)}
	}
	if k := s.addresses.ipv6; k != nil {
		out.PublicNet.IPv6 = schema.ServerPublicNetIPv6{ID: k.id, IP: k.net.String(), DNSPtr: k.pointers.inside(k.net)}
	}
	for _, a := range s.private {
		if a.pending {
			continue
		}
		net := schema.ServerPrivateNet{Network: a.network, IP: a.ip.String(), AliasIPs: []string{}, MACAddress: a.mac}
		for _, alias := range a.aliases {
			net.AliasIPs = append(net.AliasIPs, alias.String())
		}
		out.PrivateNet = append(out.PrivateNet, net)
	}
	return out
}

func (p *project) serverBody(s *server) serverBody {
	out := serverBody{Server: p.renderServer(s)}
	net := out.Server.PublicNet
	out.PublicNet = publicNet{FloatingIPs: net.FloatingIPs, Firewalls: net.Firewalls}
	if s.addresses.ipv4 != nil {
		out.PublicNet.IPv4 = &net.IPv4
	}
	if s.addresses.ipv6 != nil {
		out.PublicNet.IPv6 = &net.IPv6
	}
	return out
}

// staticName returns the default reverse DNS name of an IPv4 address.
func staticName(ip netip.Addr) string {
	b := ip.As4()
	return fmt.Sprintf("static.%d.%d.%d.%d.clients.your-server.de", b[3], b[2], b[1], b[0])
}

// macOf returns a locally administered MAC address, unique in a network because the IP is.
func macOf(ip netip.Addr) string {
	b := ip.As4()
	return fmt.Sprintf("86:00:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[3])
}
