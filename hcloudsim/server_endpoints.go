package hcloudsim

import (
	"net/http"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

func serverOperations() []operation {
	k := kind[*server]{
		name: kindServer, plural: "servers",
		rows: func(p *project) *table[*server] { return &p.servers },
		body: func(p *project, s *server) any { return p.serverBody(s) },
		filters: map[string]filter[*server]{"status": {
			func(s *server) string { return s.status }, serverStatuses(),
		}},
		nameRule:       checkServerName,
		editableAlways: true,
		remove:         (*call).deleteServer,
	}
	return append(k.operations((*call).createServer,
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
		on(k, "change_dns_ptr", (*call).changeServerPointer),
		on(k, "change_protection", (*call).protectServer),
		on(k, "attach_to_network", (*call).attachServer),
		on(k, "detach_from_network", (*call).detachServer),
		on(k, "change_alias_ips", (*call).changeAliasIPs),
	), k.view("metrics", metrics[*server](map[string][]string{
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
	p.landFloatingIPs(s.id)
	p.dropBackups(s)
	for _, v := range p.volumes.rows {
		if v.server == s.id {
			v.server = 0
		}
	}
	for _, f := range p.firewalls.rows {
		f.drop(firewallTarget{server: s.id})
	}
	for _, lb := range p.loadBalancers.rows {
		lb.dropServer(s.id)
	}
}

// power returns an action that turns a server on or off. A boot leaves the rescue system.
func power(command, during, after string) func(*call, *server, struct{}) (change, error) {
	return func(_ *call, s *server, _ struct{}) (change, error) {
		before := s.status
		if before != after {
			s.status = during
		}
		return change{
			command: command,
			finish: func() {
				s.status = after
				s.rescue = s.rescue && after == statusOff
			},
			undo: func() { s.status = before },
		}, nil
	}
}

// reboot has no effect on a server that is off.
func (c *call) reboot(s *server, _ struct{}) (change, error) {
	return change{
		command: "reboot_server",
		finish:  func() { s.rescue = s.rescue && s.status == statusOff },
	}, nil
}

// protectServer requires equal delete and rebuild protection, as the API does.
func (c *call) protectServer(
	s *server, req schema.ServerActionChangeProtectionRequest,
) (change, error) {
	remove, rebuild := s.protected, s.protected
	set(&remove, req.Delete)
	set(&rebuild, req.Rebuild)
	if remove != rebuild {
		return change{}, errInvalid("rebuild", "must have the same value as delete")
	}
	return change{command: "change_protection", finish: func() { s.protected = remove }}, nil
}

func (p *project) attach(s *server, n *network, wish place) (*attachment, error) {
	if s.attachmentTo(n.id) != nil {
		return nil, errRefused("server_already_attached", "the server is already attached to network %d", n.id)
	}
	if exceeds(len(s.private), p.opts.ServerNetworkLimit) {
		return nil, errLimit("server_network_limit", p.opts.ServerNetworkLimit)
	}
	for _, a := range s.private {
		if other, ok := p.networks.get(a.network); ok && other.ipRange.Overlaps(n.ipRange) {
			return nil, errRefused("networks_overlap", "network %d overlaps with network %d of the server", n.id, other.id)
		}
	}
	wish.zone = s.location.NetworkZone
	a, err := p.findPlace(n, wish)
	if err != nil {
		return nil, err
	}
	a.mac = macOf(a.ip)
	s.private = append(s.private, a)
	return a, nil
}

func (c *call) attachServer(
	s *server, req schema.ServerActionAttachToNetworkRequest,
) (change, error) {
	n, err := c.idleNetwork(req.Network)
	if err != nil {
		return change{}, err
	}
	wish := place{ip: req.IP, ipRange: req.IPRange}
	for _, alias := range req.AliasIPs {
		if alias != nil {
			wish.aliases = append(wish.aliases, *alias)
		}
	}
	a, err := c.attach(s, n, wish)
	if err != nil {
		return change{}, err
	}
	return s.attaching(a), nil
}

// attaching is the action of a new attachment.
func (s *server) attaching(a *attachment) change {
	a.pending = true
	return change{
		command: "attach_to_network",
		about:   []ref{s.ref(), {kindNetwork, a.network}},
		finish:  func() { a.pending = false },
		undo:    func() { s.detach(a.network) },
	}
}

func (c *call) detachServer(
	s *server, req schema.ServerActionDetachFromNetworkRequest,
) (change, error) {
	n, _, err := c.attachedTo(s, req.Network)
	if err != nil {
		return change{}, err
	}
	return change{
		command: "detach_from_network",
		about:   []ref{s.ref(), n.ref()},
		finish:  func() { s.detach(n.id) },
	}, nil
}

func (c *call) changeAliasIPs(
	s *server, req schema.ServerActionChangeAliasIPsRequest,
) (change, error) {
	n, a, err := c.attachedTo(s, req.Network)
	if err != nil {
		return change{}, err
	}
	aliases, err := c.newAliases(s, n, a, req.AliasIPs)
	if err != nil {
		return change{}, err
	}
	return change{
		command: "change_alias_ips",
		about:   []ref{s.ref(), n.ref()},
		finish:  func() { a.aliases = aliases },
	}, nil
}

// attachedTo returns an idle network of the server, and its attachment to it.
func (c *call) attachedTo(s *server, id int64) (*network, *attachment, error) {
	n, err := c.idleNetwork(id)
	if err != nil {
		return nil, nil, err
	}
	a := s.attachmentTo(n.id)
	if a == nil {
		return nil, nil, errInvalid("network", "the server is not attached to network %d", n.id)
	}
	return n, a, nil
}

// idleNetwork returns the network with an ID, unless it is being changed.
func (p *project) idleNetwork(id int64) (*network, error) {
	n, err := must(&p.networks, kindNetwork, id)
	if err != nil {
		return nil, err
	}
	return n, p.idle(n.ref())
}
