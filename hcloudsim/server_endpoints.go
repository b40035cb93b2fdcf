package hcloudsim

import (
	"net/http"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

func (c *call) server() (*server, error) { return found(c, &c.servers, kindServer) }

func (c *call) listServers() (reply, error) {
	chosen, err := selected(c, &c.servers)
	if err != nil {
		return reply{}, err
	}
	statuses := c.request.URL.Query()["status"]
	for _, status := range statuses {
		if !slices.Contains([]string{
			statusInitializing, statusStarting, statusRunning, statusStopping, statusOff,
			"deleting", "migrating", "rebuilding", "unknown",
		}, status) {
			return reply{}, errInvalid("status", "'%s' is no status of a server", status)
		}
	}
	chosen = slices.DeleteFunc(chosen, func(s *server) bool { return !asked(statuses, s.status) })
	return list(c, "servers", chosen, byBase[*server](), c.serverBody)
}

func (c *call) getServer() (reply, error) {
	s, err := c.server()
	if err != nil {
		return reply{}, err
	}
	return ok(http.StatusOK, kindServer, c.serverBody(s))
}

func (c *call) updateServer() (reply, error) {
	s, err := c.server()
	if err != nil {
		return reply{}, err
	}
	req, err := decode[schema.ServerUpdateRequest](c)
	if err != nil {
		return reply{}, err
	}
	if req.Name != "" {
		if err := checkServerName(req.Name); err != nil {
			return reply{}, err
		}
		if err := c.servers.nameFree(req.Name, s.id); err != nil {
			return reply{}, err
		}
	}
	if err := s.update(req.Name, req.Labels); err != nil {
		return reply{}, err
	}
	return ok(http.StatusOK, kindServer, c.serverBody(s))
}

// deleteServer removes the server at once from the project, its networks and load balancers, as
// the API does. Routes to it remain without effect; its floating IPs are unassigned.
func (c *call) deleteServer() (reply, error) {
	s, err := c.server()
	if err != nil {
		return reply{}, err
	}
	if s.protected {
		return reply{}, errProtected(kindServer)
	}
	if err := c.idle(s.ref()); err != nil {
		return reply{}, err
	}
	c.removeServer(s)
	gone := c.begin(change{command: "delete_server", about: []ref{s.ref()}})
	return ok(http.StatusOK, "action", c.renderAction(gone))
}

func (p *project) removeServer(s *server) {
	p.servers.remove(s.id)
	p.release(s.ref())
	p.landFloatingIPs(s.id)
	for _, lb := range p.loadBalancers.rows {
		lb.dropServer(s.id)
	}
}

func power(command, meanwhile, after string) endpoint {
	return func(c *call) (reply, error) {
		s, err := c.server()
		if err != nil {
			return reply{}, err
		}
		if err := c.idle(s.ref()); err != nil {
			return reply{}, err
		}
		before := s.status
		if before != after {
			s.status = meanwhile
		}
		return c.started(c.begin(change{
			command: command,
			about:   []ref{s.ref()},
			finish:  func() { s.status = after },
			undo:    func() { s.status = before },
		}))
	}
}

// reboot has no effect on a server that is off.
func (c *call) reboot() (reply, error) {
	s, err := c.server()
	if err != nil {
		return reply{}, err
	}
	if err := c.idle(s.ref()); err != nil {
		return reply{}, err
	}
	return c.started(c.begin(change{command: "reboot_server", about: []ref{s.ref()}}))
}

// protectServer requires equal delete and rebuild protection, as the API does.
func (c *call) protectServer() (reply, error) {
	s, err := c.server()
	if err != nil {
		return reply{}, err
	}
	req, err := decode[schema.ServerActionChangeProtectionRequest](c)
	if err != nil {
		return reply{}, err
	}
	if err := c.idle(s.ref()); err != nil {
		return reply{}, err
	}
	remove, rebuild := s.protected, s.protected
	set(&remove, req.Delete)
	set(&rebuild, req.Rebuild)
	if remove != rebuild {
		return reply{}, errInvalid("rebuild", "must have the same value as delete")
	}
	return c.started(c.begin(change{
		command: "change_protection",
		about:   []ref{s.ref()},
		finish:  func() { s.protected = remove },
	}))
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

func (c *call) attachServer() (reply, error) {
	s, n, req, err := serverAndNetwork(c, func(r schema.ServerActionAttachToNetworkRequest) int64 { return r.Network })
	if err != nil {
		return reply{}, err
	}
	wish := place{ip: req.IP, ipRange: req.IPRange}
	for _, alias := range req.AliasIPs {
		if alias != nil {
			wish.aliases = append(wish.aliases, *alias)
		}
	}
	a, err := c.attach(s, n, wish)
	if err != nil {
		return reply{}, err
	}
	a.pending = true
	return c.started(c.begin(change{
		command: "attach_to_network",
		about:   []ref{s.ref(), n.ref()},
		finish:  func() { a.pending = false },
		undo:    func() { s.detach(n.id) },
	}))
}

func (c *call) detachServer() (reply, error) {
	s, n, _, err := serverAndNetwork(c, func(r schema.ServerActionDetachFromNetworkRequest) int64 { return r.Network })
	if err != nil {
		return reply{}, err
	}
	if s.attachmentTo(n.id) == nil {
		return reply{}, errInvalid("network", "the server is not attached to network %d", n.id)
	}
	return c.started(c.begin(change{
		command: "detach_from_network",
		about:   []ref{s.ref(), n.ref()},
		finish:  func() { s.detach(n.id) },
	}))
}

func (c *call) changeAliasIPs() (reply, error) {
	s, n, req, err := serverAndNetwork(c, func(r schema.ServerActionChangeAliasIPsRequest) int64 { return r.Network })
	if err != nil {
		return reply{}, err
	}
	a := s.attachmentTo(n.id)
	if a == nil {
		return reply{}, errInvalid("network", "the server is not attached to network %d", n.id)
	}
	aliases, err := c.newAliases(s, n, a, req.AliasIPs)
	if err != nil {
		return reply{}, err
	}
	return c.started(c.begin(change{
		command: "change_alias_ips",
		about:   []ref{s.ref(), n.ref()},
		finish:  func() { a.aliases = aliases },
	}))
}

// serverAndNetwork parses a request to change the server in the path and the network in the body,
// and refuses it while either of them changes.
func serverAndNetwork[T any](c *call, networkID func(T) int64) (s *server, n *network, req T, err error) {
	if s, err = c.server(); err != nil {
		return s, n, req, err
	}
	if req, err = decode[T](c); err != nil {
		return s, n, req, err
	}
	if n, err = must(&c.networks, kindNetwork, networkID(req)); err != nil {
		return s, n, req, err
	}
	return s, n, req, c.idle(s.ref(), n.ref())
}
