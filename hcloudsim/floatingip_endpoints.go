package hcloudsim

import (
	"cmp"
	"net/http"
	"net/netip"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

func floatingIPOperations() []operation {
	rows := func(p *project) *table[*floatingIP] { return &p.floatingIPs }
	return []operation{
		{"GET", "/floating_ips", (*call).listFloatingIPs},
		{"POST", "/floating_ips", (*call).createFloatingIP},
		{"GET", "/floating_ips/{id}", (*call).getFloatingIP},
		{"PUT", "/floating_ips/{id}", (*call).updateFloatingIP},
		{"DELETE", "/floating_ips/{id}", (*call).deleteFloatingIP},
		{"POST", "/floating_ips/{id}/actions/assign", (*call).assignFloatingIP},
		{"POST", "/floating_ips/{id}/actions/unassign", (*call).unassignFloatingIP},
		{"POST", "/floating_ips/{id}/actions/change_dns_ptr", (*call).changeFloatingIPPointer},
		{"POST", "/floating_ips/{id}/actions/change_protection", (*call).protectFloatingIP},
		{"GET", "/floating_ips/actions", listKindActions(kindFloatingIP)},
		{"GET", "/floating_ips/actions/{id}", getAction(kindFloatingIP, "id")},
		{"GET", "/floating_ips/{id}/actions", listResourceActions(kindFloatingIP, rows)},
		{"GET", "/floating_ips/{id}/actions/{action_id}", getAction(kindFloatingIP, "action_id")},
	}
}

func (c *call) floatingIP() (*floatingIP, error) { return found(c, &c.floatingIPs, kindFloatingIP) }

func (c *call) listFloatingIPs() (reply, error) {
	chosen, err := selected(c, &c.floatingIPs)
	if err != nil {
		return reply{}, err
	}
	by := byBase[*floatingIP]()
	delete(by, "name")
	return list(c, "floating_ips", chosen, by, c.renderFloatingIP)
}

func (c *call) getFloatingIP() (reply, error) {
	f, err := c.floatingIP()
	if err != nil {
		return reply{}, err
	}
	return ok(http.StatusOK, kindFloatingIP, c.renderFloatingIP(f))
}

type floatingIPRequest struct {
	Type         string             `json:"type"`
	HomeLocation *schema.IDOrName   `json:"home_location"`
	Server       *int64             `json:"server"`
	Name         *string            `json:"name"`
	Description  *string            `json:"description"`
	Labels       *map[string]string `json:"labels"`
}

// createFloatingIP creates the floating IP at once; an action assigns it, if requested.
func (c *call) createFloatingIP() (reply, error) {
	req, err := decode[floatingIPRequest](c)
	if err != nil {
		return reply{}, err
	}
	f, s, err := c.judgeFloatingIP(req)
	if err != nil {
		return reply{}, err
	}
	c.addFloatingIP(f)
	body := map[string]any{kindFloatingIP: c.renderFloatingIP(f)}
	if s != nil {
		a := c.renderAction(c.beginFloating(f, s))
		body["action"], body[kindFloatingIP] = a, c.renderFloatingIP(f)
	}
	return reply{status: http.StatusCreated, body: body}, nil
}

type floatingIPUpdate struct {
	Name        string             `json:"name"`
	Description *string            `json:"description"`
	Labels      *map[string]string `json:"labels"`
}

// updateFloatingIP does not affect routing, so it does not wait for an action.
func (c *call) updateFloatingIP() (reply, error) {
	f, err := c.floatingIP()
	if err != nil {
		return reply{}, err
	}
	req, err := decode[floatingIPUpdate](c)
	if err != nil {
		return reply{}, err
	}
	if req.Name != "" {
		if err := cmp.Or(checkName(req.Name), c.floatingIPs.nameFree(req.Name, f.id)); err != nil {
			return reply{}, err
		}
	}
	if err := f.update(req.Name, req.Labels); err != nil {
		return reply{}, err
	}
	set(&f.description, req.Description)
	return ok(http.StatusOK, kindFloatingIP, c.renderFloatingIP(f))
}

func (c *call) deleteFloatingIP() (reply, error) {
	f, err := c.floatingIP()
	switch {
	case err != nil:
		return reply{}, err
	case f.protected:
		return reply{}, errProtected(kindFloatingIP)
	case f.server != 0:
		return reply{}, errRefused("must_be_unassigned", "the floating IP is assigned to server %d", f.server)
	}
	if err := c.idle(f.ref()); err != nil {
		return reply{}, err
	}
	c.floatingIPs.remove(f.id)
	return reply{status: http.StatusNoContent}, nil
}

// beginFloating assigns a floating IP, unless the server is deleted before the action ends.
func (c *call) beginFloating(f *floatingIP, s *server) *action {
	return c.begin(change{command: "assign_floating_ip", about: []ref{f.ref(), s.ref()}, finish: func() {
		if _, there := c.servers.get(s.id); there {
			f.server = s.id
		}
	}})
}

func (c *call) assignFloatingIP() (reply, error) {
	f, err := c.floatingIP()
	if err != nil {
		return reply{}, err
	}
	req, err := decode[struct {
		Server *int64 `json:"server"`
	}](c)
	if err != nil {
		return reply{}, err
	}
	if req.Server == nil {
		return reply{}, errInvalid("server", "is required")
	}
	s, err := must(&c.servers, kindServer, *req.Server)
	if err != nil {
		return reply{}, err
	}
	if err := cmp.Or(c.mayFloat(f, s), c.idle(f.ref())); err != nil {
		return reply{}, err
	}
	return c.started(c.beginFloating(f, s))
}

func (c *call) unassignFloatingIP() (reply, error) {
	f, err := c.floatingIP()
	if err != nil {
		return reply{}, err
	}
	if f.server == 0 {
		return reply{}, errInvalid("server", "the floating IP is assigned to no server")
	}
	on := ref{kindServer, f.server}
	if err := c.idle(f.ref(), on); err != nil {
		return reply{}, err
	}
	return c.started(c.begin(change{command: "unassign_floating_ip", about: []ref{f.ref(), on}, finish: func() { f.server = 0 }}))
}

func (c *call) changeFloatingIPPointer() (reply, error) {
	f, err := c.floatingIP()
	if err != nil {
		return reply{}, err
	}
	req, err := decode[schema.FloatingIPActionChangeDNSPtrRequest](c)
	if err != nil {
		return reply{}, err
	}
	if err := c.idle(f.ref()); err != nil {
		return reply{}, err
	}
	ip, err := netip.ParseAddr(req.IP)
	if err != nil || !f.net.Contains(ip) {
		return reply{}, errInvalid("ip", "'%s' is no address of the floating IP", req.IP)
	}
	finish, err := f.pointers.change(ip, req.DNSPtr)
	if err != nil {
		return reply{}, err
	}
	return c.started(c.begin(change{command: "change_dns_ptr", about: []ref{f.ref()}, finish: finish}))
}

func (c *call) protectFloatingIP() (reply, error) {
	f, err := c.floatingIP()
	if err != nil {
		return reply{}, err
	}
	req, err := decode[schema.FloatingIPActionChangeProtectionRequest](c)
	if err != nil {
		return reply{}, err
	}
	if err := c.idle(f.ref()); err != nil {
		return reply{}, err
	}
	protected := f.protected
	set(&protected, req.Delete)
	return c.started(c.begin(change{command: "change_protection", about: []ref{f.ref()}, finish: func() { f.protected = protected }}))
}
