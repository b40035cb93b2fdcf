package hcloudsim

import (
	"cmp"
	"fmt"
	"net/http"
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
	return cmp.Or(s.addresses.ipv4, &primaryIP{}).net.Addr()
}

// ipv6 returns the public /64, or zero.
func (s *server) ipv6() netip.Prefix { return cmp.Or(s.addresses.ipv6, &primaryIP{}).net }

func (s *server) ref() ref { return ref{kindServer, s.id} }

func (s *server) attachmentTo(network int64) *attachment {
	return first(s.private, func(a *attachment) bool { return a.network == network })
}

func (s *server) detach(network int64) { s.private = without(s.private, s.attachmentTo(network)) }

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
	out := schema.Server{
		ID: s.id, Name: s.name, Status: s.status, Created: s.created, Labels: cloneLabels(s.labels),
		PublicNet: schema.ServerPublicNet{
			FloatingIPs: ids(&p.floatingIPs, func(f *floatingIP) bool { return f.server == s.id }),
			Firewalls:   p.firewallsOn(s),
		},
		ServerType: s.serverType, Location: s.location, Image: s.image, PrimaryDiskSize: s.disk,
		IncludedTraffic: 20 << 40, OutgoingTraffic: new(uint64), IngoingTraffic: new(uint64),
		Locked:     p.busy(s.ref()),
		Protection: schema.ServerProtection{Delete: s.protected, Rebuild: s.protected},
		Volumes:    p.volumesOn(s), RescueEnabled: s.rescue, ISO: s.iso,
		LoadBalancers: ids(&p.loadBalancers, func(lb *loadBalancer) bool {
			return slices.ContainsFunc(shown(p, lb.targets), func(t *target) bool { return t.reaches(s) })
		}),
		PrivateNet: rendered(shown(p, s.private), func(a *attachment) schema.ServerPrivateNet {
			return schema.ServerPrivateNet{
				Network: a.network, IP: a.ip.String(), MACAddress: a.mac,
				AliasIPs: rendered(a.aliases, netip.Addr.String),
			}
		}),
	}
	if s.backups {
		out.BackupWindow = new(backupWindow)
	}
	if g, ok := p.groups.get(s.group); ok {
		out.PlacementGroup = new(p.renderPlacementGroup(g))
	}
	if k := s.addresses.ipv4; k != nil {
		ip := s.ipv4()
		out.PublicNet.IPv4 = schema.ServerPublicNetIPv4{ID: k.id, IP: k.text(), DNSPtr: k.pointer(ip)}
	}
	if k := s.addresses.ipv6; k != nil {
		out.PublicNet.IPv6 = schema.ServerPublicNetIPv6{ID: k.id, IP: k.text(), DNSPtr: k.entries()}
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

// macOf returns a locally administered MAC address, unique in a network because the IP is.
func macOf(ip netip.Addr) string {
	b := ip.As4()
	return fmt.Sprintf("86:00:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[3])
}

func serverKind() kind[*server] {
	return kind[*server]{
		name: kindServer, plural: "servers",
		rows: func(p *project) *table[*server] { return &p.servers },
		body: func(p *project, s *server) any { return p.serverBody(s) },
		filters: map[string]filter[*server]{"status": {
			func(s *server) string { return s.status },
			[]string{
				statusInitializing, statusStarting, statusRunning, statusStopping, statusOff,
				statusMigrating, statusRebuilding, "deleting", "unknown",
			},
		}},
		nameRule:       checkServerName,
		editableAlways: true,
		remove:         (*call).deleteServer,
	}
}

func serverOperations() []operation {
	k := serverKind()
	return append(k.operations(create(k, (*call).createServer),
		on(k, "poweron", power("start_server", statusStarting, statusRunning)),
		on(k, "poweroff", power("stop_server", statusStopping, statusOff)),
		on(k, "shutdown", power("shutdown_server", statusStopping, statusOff)),
		on(k, "reboot", (*call).reboot),
		on(k, "reset", power("reset_server", statusStarting, statusRunning)),
		on(k, "reset_password", (*call).resetPassword),
		on(k, "request_console", (*call).requestConsole),
		on(k, "rebuild", (*call).rebuildServer),
		on(k, "change_type", (*call).changeServerType),
		on(k, "create_image", (*call).createImage),
		on(k, "enable_backup", (*call).enableBackup),
		on(k, "disable_backup", (*call).disableBackup),
		on(k, "enable_rescue", (*call).enableRescue),
		on(k, "disable_rescue", (*call).disableRescue),
		on(k, "attach_iso", (*call).attachISO),
		on(k, "detach_iso", (*call).detachISO),
		on(k, "add_to_placement_group", (*call).addToPlacementGroup),
		on(k, "remove_from_placement_group", (*call).removeFromPlacementGroup),
		on(k, "change_dns_ptr", func(_ *call, s *server, req pointerRequest) (change, error) {
			k := s.addresses.having(req.IP)
			return k.changePointer(k.net, req)
		}),
		on(k, "change_protection", (*call).protectServer),
		on(k, "attach_to_network", (*call).attachServer),
		on(k, "detach_from_network", (*call).detachServer),
		on(k, "change_alias_ips", (*call).changeAliasIPs),
	), k.view("/metrics", metrics[*server](map[string][]string{
		"cpu": {"cpu"},
		"disk": {
			"disk.0.iops.read", "disk.0.iops.write",
			"disk.0.bandwidth.read", "disk.0.bandwidth.write",
		},
		"network": {
			"network.0.pps.in", "network.0.pps.out",
			"network.0.bandwidth.in", "network.0.bandwidth.out",
		},
	})))
}

// deleteServer removes the server at once from the project, its networks and load balancers, as
// the API does. Routes to it remain without effect; floating IPs and volumes are kept.
func (c *call) deleteServer(s *server) (reply, error) {
	c.removeServer(s)
	gone := c.begin(change{command: "delete_server", about: []ref{s.ref()}})
	return ok(http.StatusOK, "action", c.renderAction(gone))
}

func (p *project) removeServer(s *server) {
	p.servers.remove(s.id)
	p.release(s.ref())
	p.dropBackups(s)
	for _, f := range p.floatingIPs.rows {
		if f.server == s.id {
			f.server = 0
		}
	}
	for _, v := range p.volumes.rows {
		if v.isAt(s) {
			v.Server = nil
		}
	}
	for _, f := range p.firewalls.rows {
		f.drop(firewallTarget{server: s.id})
	}
	for _, lb := range p.loadBalancers.rows {
		lb.dropTargets(func(t *target) bool { return t.kind == targetServer && t.server == s.id })
	}
}
