package hcloudsim

import (
	"cmp"
	"net/http"
	"net/netip"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

func primaryIPOperations() []operation {
	k := kind[*primaryIP]{
		name: kindPrimaryIP, plural: "primary_ips",
		rows:    func(p *project) *table[*primaryIP] { return &p.primaryIPs },
		body:    func(p *project, k *primaryIP) any { return p.renderPrimaryIP(k) },
		unnamed: true,
		// The address is without prefix length, as in hcloud-go.
		filters: map[string]filter[*primaryIP]{
			"ip": {of: func(k *primaryIP) string { return k.net.Addr().String() }},
		},
		edit: func(k *primaryIP, req updateRequest) error {
			if req.AutoDelete != nil && *req.AutoDelete && k.protected {
				return errInvalid("auto_delete",
					"can't be enabled while the primary IP is protected against deletion")
			}
			set(&k.autoDelete, req.AutoDelete)
			return nil
		},
		mayProtect: func(k *primaryIP) error {
			if k.autoDelete {
				return errInvalid("delete", "can't be enabled while auto_delete is")
			}
			return nil
		},
		mayDelete: func(_ *project, k *primaryIP) error {
			if k.free() {
				return nil
			}
			return errRefused("must_be_unassigned",
				"the primary IP is assigned to %s %d", k.holder.kind, k.holder.id)
		},
	}
	return k.operations((*call).createPrimaryIP,
		on(k, "assign", (*call).assignPrimaryIP),
		on(k, "unassign", (*call).unassignPrimaryIP),
		on(k, "change_dns_ptr", func(_ *call, k *primaryIP, req pointerRequest) (change, error) {
			return k.pointers.change(k.net, req)
		}),
		k.protection(),
	)
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
		a := c.renderAction(c.begin(assignment(k, s)))
		body["action"], body[kindPrimaryIP] = a, c.renderPrimaryIP(k)
	}
	return reply{status: http.StatusCreated, body: body}, nil
}

// judgePrimaryIP validates a request. It returns the new primary IP, which has no ID or address
// yet, and the server to assign it to, if any.
func (p *project) judgePrimaryIP(req primaryIPRequest) (*primaryIP, *server, error) {
	b, err := newNamed(&p.primaryIPs, checkName, req.Name, req.Labels)
	if err != nil {
		return nil, nil, err
	}
	if req.Type != typeIPv4 && req.Type != typeIPv6 {
		return nil, nil, errInvalid("type", "must be one of %s, %s", typeIPv4, typeIPv6)
	}
	k := &primaryIP{base: b, kind: req.Type}
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

func assignment(k *primaryIP, s *server) change {
	return change{
		command: "assign_primary_ip",
		about:   []ref{k.ref(), s.ref()},
		finish:  func() { s.assign(k) },
	}
}

func (c *call) assignPrimaryIP(
	k *primaryIP, req schema.PrimaryIPActionAssignRequest,
) (change, error) {
	s, err := c.assignable(req.AssigneeType, req.AssigneeID)
	if err != nil {
		return change{}, err
	}
	return assignment(k, s), c.mayAssign(k, s)
}

func (c *call) unassignPrimaryIP(k *primaryIP, _ struct{}) (change, error) {
	if k.holder.kind != kindServer {
		return change{}, errInvalid("assignee_id", "the primary IP is assigned to no server")
	}
	s, err := must(&c.servers, kindServer, k.holder.id)
	switch {
	case err != nil:
		return change{}, err
	case s.status != statusOff:
		return change{}, errRefused("server_not_stopped", "the server is not off")
	case k.kind == typeIPv4 && c.targetedPublicly(s):
		return change{}, errRefused("server_is_load_balancer_target",
			"the server's IPv4 address is a load balancer's target")
	}
	return change{
		command: "unassign_primary_ip",
		about:   []ref{k.ref(), s.ref()},
		finish:  func() { s.unassign(k) },
	}, c.idle(s.ref())
}

// targetedPublicly reports whether a load balancer reaches the server at its public IPv4 address.
func (p *project) targetedPublicly(s *server) bool {
	return slices.ContainsFunc(p.loadBalancers.rows, func(lb *loadBalancer) bool {
		return slices.ContainsFunc(lb.targets, func(t *target) bool {
			return t.reaches(s) && !t.usePrivate && (!t.ip.IsValid() || t.ip == s.ipv4())
		})
	})
}
