package hcloudsim

import (
	"cmp"
	"net/http"
	"net/netip"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

func primaryIPOperations() []operation {
	rows := func(p *project) *table[*primaryIP] { return &p.primaryIPs }
	return []operation{
		{"GET", "/primary_ips", (*call).listPrimaryIPs},
		{"POST", "/primary_ips", (*call).createPrimaryIP},
		{"GET", "/primary_ips/{id}", (*call).getPrimaryIP},
		{"PUT", "/primary_ips/{id}", (*call).updatePrimaryIP},
		{"DELETE", "/primary_ips/{id}", (*call).deletePrimaryIP},
		{"POST", "/primary_ips/{id}/actions/assign", (*call).assignPrimaryIP},
		{"POST", "/primary_ips/{id}/actions/unassign", (*call).unassignPrimaryIP},
		{"POST", "/primary_ips/{id}/actions/change_dns_ptr", (*call).changePrimaryIPPointer},
		{"POST", "/primary_ips/{id}/actions/change_protection", (*call).protectPrimaryIP},
		{"GET", "/primary_ips/actions", listKindActions(kindPrimaryIP)},
		{"GET", "/primary_ips/actions/{id}", getAction(kindPrimaryIP, "id")},
		{"GET", "/primary_ips/{id}/actions", listResourceActions(kindPrimaryIP, rows)},
		{"GET", "/primary_ips/{id}/actions/{action_id}", getAction(kindPrimaryIP, "action_id")},
	}
}

func (c *call) primaryIP() (*primaryIP, error) { return found(c, &c.primaryIPs, kindPrimaryIP) }

func (c *call) listPrimaryIPs() (reply, error) {
	chosen, err := selected(c, &c.primaryIPs)
	if err != nil {
		return reply{}, err
	}
	if query := c.request.URL.Query(); query.Has("ip") { // without prefix length, as in hcloud-go
		chosen = slices.DeleteFunc(chosen, func(k *primaryIP) bool { return k.net.Addr().String() != query.Get("ip") })
	}
	by := byBase[*primaryIP]()
	delete(by, "name")
	return list(c, "primary_ips", chosen, by, c.renderPrimaryIP)
}

func (c *call) getPrimaryIP() (reply, error) {
	k, err := c.primaryIP()
	if err != nil {
		return reply{}, err
	}
	return ok(http.StatusOK, kindPrimaryIP, c.renderPrimaryIP(k))
}

type primaryIPRequest struct {
	schema.PrimaryIPCreateRequest
	Location *schema.IDOrName `json:"location"`
}

// createPrimaryIP creates the primary IP at once; an action assigns it, if requested.
func (c *call) createPrimaryIP() (reply, error) {
	req, err := decode[primaryIPRequest](c)
	if err != nil {
		return reply{}, err
	}
	k, s, err := c.judgePrimaryIP(req)
	if err != nil {
		return reply{}, err
	}
	c.addPrimaryIP(k)
	body := map[string]any{kindPrimaryIP: c.renderPrimaryIP(k)}
	if s != nil {
		a := c.renderAction(c.beginAssignment(k, s))
		body["action"], body[kindPrimaryIP] = a, c.renderPrimaryIP(k)
	}
	return reply{status: http.StatusCreated, body: body}, nil
}

// judgePrimaryIP validates a request. It returns the new primary IP, which has no ID or address
// yet, and the server to assign it to, if any.
func (p *project) judgePrimaryIP(req primaryIPRequest) (*primaryIP, *server, error) {
	if err := checkName(req.Name); err != nil {
		return nil, nil, err
	}
	if err := p.primaryIPs.nameFree(req.Name, 0); err != nil {
		return nil, nil, err
	}
	if req.Type != typeIPv4 && req.Type != typeIPv6 {
		return nil, nil, errInvalid("type", "must be one of %s, %s", typeIPv4, typeIPv6)
	}
	labels, err := newLabels(req.Labels)
	if err != nil {
		return nil, nil, err
	}
	k := &primaryIP{base: base{name: req.Name, labels: labels}, kind: req.Type}
	set(&k.autoDelete, req.AutoDelete)
	switch {
	case (req.Location == nil) == (req.AssigneeID == nil):
		return nil, nil, errInvalid("location", "exactly one of location and assignee_id is required")
	case req.Location != nil:
		location, known := lookup(p.catalog.locations, *req.Location, locationKey)
		if !known {
			return nil, nil, errInvalid("location", "location does not exist")
		}
		k.location = location
		return k, nil, nil
	}
	s, err := p.assignable(req.AssigneeType, *req.AssigneeID)
	if err != nil {
		return nil, nil, err
	}
	k.location = s.location
	return k, s, p.mayAssign(k, s)
}

// addPrimaryIP adds k with a new ID, and with an allocated address if it has none.
func (p *project) addPrimaryIP(k *primaryIP) {
	if !k.net.IsValid() {
		ipv4, ipv6 := p.public.next()
		if k.net = ipv6; k.kind == typeIPv4 {
			k.net = netip.PrefixFrom(ipv4, ipv4.BitLen())
		}
	}
	k.base = p.newBase(k.name, k.labels)
	p.primaryIPs.add(k)
}

func (c *call) updatePrimaryIP() (reply, error) {
	k, err := c.primaryIP()
	if err != nil {
		return reply{}, err
	}
	req, err := decode[schema.PrimaryIPUpdateRequest](c)
	if err != nil {
		return reply{}, err
	}
	if err := c.idle(k.ref()); err != nil {
		return reply{}, err
	}
	if req.Name != "" {
		if err := cmp.Or(checkName(req.Name), c.primaryIPs.nameFree(req.Name, k.id)); err != nil {
			return reply{}, err
		}
	}
	if req.AutoDelete != nil && *req.AutoDelete && k.protected {
		return reply{}, errInvalid("auto_delete", "can't be enabled while the primary IP is protected against deletion")
	}
	if err := k.update(req.Name, req.Labels); err != nil {
		return reply{}, err
	}
	set(&k.autoDelete, req.AutoDelete)
	return ok(http.StatusOK, kindPrimaryIP, c.renderPrimaryIP(k))
}

func (c *call) deletePrimaryIP() (reply, error) {
	k, err := c.primaryIP()
	switch {
	case err != nil:
		return reply{}, err
	case k.protected:
		return reply{}, errProtected(kindPrimaryIP)
	case !k.free():
		return reply{}, errRefused("must_be_unassigned", "the primary IP is assigned to %s %d", k.holder.kind, k.holder.id)
	}
	if err := c.idle(k.ref()); err != nil {
		return reply{}, err
	}
	c.primaryIPs.remove(k.id)
	return reply{status: http.StatusNoContent}, nil
}

// assignable returns the server to assign to. Load balancers get primary IPs only at creation.
func (p *project) assignable(kind string, id int64) (*server, error) {
	if kind != kindServer {
		return nil, errInvalid("assignee_type", "must be %s", kindServer)
	}
	return must(&p.servers, kindServer, id)
}

func (p *project) mayAssign(k *primaryIP, s *server) error {
	switch {
	case !k.free():
		return errRefused("primary_ip_already_assigned", "the primary IP is already assigned to %s %d", k.holder.kind, k.holder.id)
	case s.status != statusOff:
		return errRefused("server_not_stopped", "the server is not off")
	case k.kind == typeIPv4 && s.addresses.ipv4 != nil:
		return errRefused("server_has_ipv4", "the server already has an IPv4 address")
	case k.kind == typeIPv6 && s.addresses.ipv6 != nil:
		return errRefused("server_has_ipv6", "the server already has an IPv6 address")
	}
	pair := addressPair{ipv4: k}
	return cmp.Or(pair.in(s.location), p.idle(s.ref()))
}

func (c *call) beginAssignment(k *primaryIP, s *server) *action {
	return c.begin(change{command: "assign_primary_ip", about: []ref{k.ref(), s.ref()}, finish: func() { s.assign(k) }})
}

func (c *call) assignPrimaryIP() (reply, error) {
	k, err := c.primaryIP()
	if err != nil {
		return reply{}, err
	}
	req, err := decode[schema.PrimaryIPActionAssignRequest](c)
	if err != nil {
		return reply{}, err
	}
	s, err := c.assignable(req.AssigneeType, req.AssigneeID)
	if err != nil {
		return reply{}, err
	}
	if err := cmp.Or(c.mayAssign(k, s), c.idle(k.ref())); err != nil {
		return reply{}, err
	}
	return c.started(c.beginAssignment(k, s))
}

func (c *call) unassignPrimaryIP() (reply, error) {
	k, err := c.primaryIP()
	if err != nil {
		return reply{}, err
	}
	if k.holder.kind != kindServer {
		return reply{}, errInvalid("assignee_id", "the primary IP is assigned to no server")
	}
	s, err := must(&c.servers, kindServer, k.holder.id)
	switch {
	case err != nil:
		return reply{}, err
	case s.status != statusOff:
		return reply{}, errRefused("server_not_stopped", "the server is not off")
	case k.kind == typeIPv4 && c.targetedPublicly(s):
		return reply{}, errRefused("server_is_load_balancer_target", "the server's IPv4 address is a load balancer's target")
	}
	if err := c.idle(k.ref(), s.ref()); err != nil {
		return reply{}, err
	}
	return c.started(c.begin(change{command: "unassign_primary_ip", about: []ref{k.ref(), s.ref()}, finish: func() { s.unassign(k) }}))
}

// targetedPublicly reports whether a load balancer reaches the server at its public IPv4 address.
func (p *project) targetedPublicly(s *server) bool {
	return slices.ContainsFunc(p.loadBalancers.rows, func(lb *loadBalancer) bool {
		return slices.ContainsFunc(lb.targets, func(t *target) bool {
			return t.reaches(s) && !t.usePrivate && (!t.ip.IsValid() || t.ip == s.ipv4())
		})
	})
}

func (c *call) changePrimaryIPPointer() (reply, error) {
	k, err := c.primaryIP()
	if err != nil {
		return reply{}, err
	}
	req, err := decode[schema.PrimaryIPActionChangeDNSPtrRequest](c)
	if err != nil {
		return reply{}, err
	}
	if err := c.idle(k.ref()); err != nil {
		return reply{}, err
	}
	ip, err := netip.ParseAddr(req.IP)
	if err != nil || !k.net.Contains(ip) {
		return reply{}, errInvalid("ip", "'%s' is no address of the primary IP", req.IP)
	}
	finish, err := k.pointers.change(ip, req.DNSPtr)
	if err != nil {
		return reply{}, err
	}
	return c.started(c.begin(change{command: "change_dns_ptr", about: []ref{k.ref()}, finish: finish}))
}

func (c *call) protectPrimaryIP() (reply, error) {
	k, err := c.primaryIP()
	if err != nil {
		return reply{}, err
	}
	req, err := decode[schema.PrimaryIPActionChangeProtectionRequest](c)
	if err != nil {
		return reply{}, err
	}
	if req.Delete && k.autoDelete {
		return reply{}, errInvalid("delete", "can't be enabled while auto_delete is")
	}
	if err := c.idle(k.ref()); err != nil {
		return reply{}, err
	}
	return c.started(c.begin(change{command: "change_protection", about: []ref{k.ref()}, finish: func() { k.protected = req.Delete }}))
}
