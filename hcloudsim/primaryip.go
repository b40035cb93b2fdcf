package hcloudsim

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

const kindPrimaryIP = "primary_ip"

// primaryIP is a public address that can outlive its holder. A load balancer has one of each
// type, a server at most one. They are named at its creation, or created and deleted with it.
type primaryIP struct {
	base
	publicIP
	location   schema.Location
	holder     ref // zero: unassigned
	autoDelete bool
}

func (k *primaryIP) ref() ref { return ref{kindPrimaryIP, k.id} }

func (k *primaryIP) free() bool { return k.holder == ref{} }

// address returns the address that a load balancer holding k listens on.
func (k *primaryIP) address() netip.Addr {
	if k.isIPv4() {
		return k.net.Addr()
	}
	return k.net.Addr().Next()
}

func (p *project) renderPrimaryIP(k *primaryIP) schema.PrimaryIP {
	out := schema.PrimaryIP{
		ID: k.id, Name: k.name, Type: k.kind(), IP: k.text(), Labels: cloneLabels(k.labels),
		Created: k.created, Location: k.location, AutoDelete: k.autoDelete,
		Protection: schema.PrimaryIPProtection{Delete: k.protected}, AssigneeType: "unassigned",
	}
	if !k.free() {
		out.AssigneeType, out.AssigneeID = k.holder.kind, new(k.holder.id)
	}
	out.DNSPtr = rendered(k.entries(), func(e dnsEntry) schema.PrimaryIPDNSPTR {
		return schema.PrimaryIPDNSPTR{IP: e.IP, DNSPtr: e.DNSPtr}
	})
	return out
}

func primaryIPKind() kind[*primaryIP] {
	return kind[*primaryIP]{
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
}

func primaryIPOperations() []operation {
	k := primaryIPKind()
	return k.operations(create(k, (*call).createPrimaryIP),
		on(k, "assign", (*call).assignPrimaryIP),
		on(k, "unassign", (*call).unassignPrimaryIP),
		on(k, "change_dns_ptr", func(_ *call, k *primaryIP, req pointerRequest) (change, error) {
			return k.changePointer(k.net, req)
		}),
		k.protection(),
	)
}

type primaryIPRequest struct {
	schema.PrimaryIPCreateRequest
	Location *schema.IDOrName `json:"location"`
}

// createPrimaryIP creates the primary IP at once; an action assigns it, if requested.
func (c *call) createPrimaryIP(req primaryIPRequest) (*primaryIP, map[string]any, error) {
	k, s, err := c.newPrimaryIP(req)
	if err != nil {
		return nil, nil, err
	}
	c.addPrimaryIP(k)
	if s == nil {
		return k, nil, nil
	}
	return k, map[string]any{"action": c.renderAction(c.begin(assignment(k, s)))}, nil
}

// newPrimaryIP validates a request. It returns the new primary IP, which has no ID yet, and the
// server to assign it to, if any.
func (p *project) newPrimaryIP(req primaryIPRequest) (k *primaryIP, s *server, err error) {
	k = &primaryIP{}
	set(&k.autoDelete, req.AutoDelete)
	if k.base, err = primaryIPKind().new(p, req.Name, req.Labels); err == nil {
		k.publicIP, err = p.allocate(req.Type)
	}
	if err == nil && req.AssigneeID != nil {
		err = checkAssignee(req.AssigneeType)
	}
	if err == nil {
		k.location, s, err = p.site(req.Location, req.AssigneeID)
	}
	if err == nil && s != nil {
		err = p.mayAssign(k, s)
	}
	return k, s, err
}

func (p *project) addPrimaryIP(k *primaryIP) {
	k.base = p.newBase(k.base)
	p.primaryIPs.add(k)
}

// checkAssignee returns an error unless primary IPs can be assigned to a kind of resource. Load
// balancers get primary IPs only at creation.
func checkAssignee(kind string) error {
	if kind != kindServer {
		return errInvalid("assignee_type", "must be %s", kindServer)
	}
	return nil
}

func (p *project) mayAssign(k *primaryIP, s *server) error {
	switch {
	case !k.free():
		return errRefused("primary_ip_already_assigned",
			"the primary IP is already assigned to %s %d", k.holder.kind, k.holder.id)
	case s.status != statusOff:
		return errRefused("server_not_stopped", "the server is not off")
	case *s.addresses.of(k) != nil:
		return errRefused("server_has_"+k.kind(), "the server already has such an address")
	}
	if err := (addressPair{ipv4: k}).in(s.location); err != nil {
		return err
	}
	return p.idle(s.ref())
}

func assignment(k *primaryIP, s *server) change {
	return change{
		command: "assign_primary_ip",
		about:   []ref{k.ref(), s.ref()},
		finish: func() {
			k.holder = s.ref()
			s.addresses.set(k)
		},
	}
}

func (c *call) assignPrimaryIP(
	k *primaryIP, req schema.PrimaryIPActionAssignRequest,
) (change, error) {
	if err := checkAssignee(req.AssigneeType); err != nil {
		return change{}, err
	}
	s, err := must(&c.servers, kindServer, req.AssigneeID)
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
	case k.isIPv4() && c.targetedPublicly(s):
		return change{}, errRefused("server_is_load_balancer_target",
			"the server's IPv4 address is a load balancer's target")
	}
	return change{
		command: "unassign_primary_ip",
		about:   []ref{k.ref(), s.ref()},
		finish: func() {
			k.holder = ref{}
			*s.addresses.of(k) = nil
		},
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

// addressPair holds the primary IPs of a load balancer or server. Either may be nil.
type addressPair struct{ ipv4, ipv6 *primaryIP }

// newAddresses returns primary IPs without an ID, which hold adds to the project.
func (p *project) newAddresses() addressPair {
	ipv4, ipv6 := p.nextAddresses()
	return addressPair{&primaryIP{publicIP: ipv4}, &primaryIP{publicIP: ipv6}}
}

func (a addressPair) all() []*primaryIP { return without([]*primaryIP{a.ipv4, a.ipv6}, nil) }

func (a addressPair) refs() []ref { return rendered(a.all(), (*primaryIP).ref) }

// of returns the place of a primary IP.
func (a *addressPair) of(k *primaryIP) **primaryIP {
	if k.isIPv4() {
		return &a.ipv4
	}
	return &a.ipv6
}

func (a *addressPair) set(k *primaryIP) { *a.of(k) = k }

// having returns the primary IP that contains an address, or one without addresses.
func (a addressPair) having(text string) *primaryIP {
	ip, _ := netip.ParseAddr(text)
	k := first(a.all(), func(k *primaryIP) bool { return k.net.Contains(ip) })
	return cmp.Or(k, &primaryIP{})
}

// namedPrimaryIPs returns the primary IPs named by ID in a creation request; 0 means absent. The
// error codes are those that the description lists for servers.
func (p *project) namedPrimaryIPs(ipv4, ipv6 int64) (pair addressPair, err error) {
	if pair.ipv4, err = p.namedPrimaryIP(ipv4, typeIPv4); err != nil {
		return addressPair{}, err
	}
	pair.ipv6, err = p.namedPrimaryIP(ipv6, typeIPv6)
	return pair, err
}

func (p *project) namedPrimaryIP(id int64, kind string) (*primaryIP, error) {
	if id == 0 {
		return nil, nil
	}
	k, err := must(&p.primaryIPs, kindPrimaryIP, id)
	switch {
	case err != nil:
		return nil, err
	case k.kind() != kind:
		return nil, newError(http.StatusPreconditionFailed, "primary_ip_version_mismatch",
			"primary IP %d is of type %s, not %s", id, k.kind(), kind)
	case !k.free():
		return nil, errRefused("primary_ip_assigned",
			"primary IP %d is already assigned to %s %d", id, k.holder.kind, k.holder.id)
	}
	return k, p.idle(k.ref())
}

// in returns an error if a primary IP is in another location.
func (a addressPair) in(location schema.Location) error {
	for _, k := range a.all() {
		if k.location.Name != location.Name {
			return errRefused("primary_ip_datacenter_mismatch",
				"primary IP %d is in %s, not in %s", k.id, k.location.Name, location.Name)
		}
	}
	return nil
}

// hold assigns primary IPs to a server or load balancer. Primary IPs without an ID are new: hold
// adds them to the project, and they are deleted with their holder.
func (p *project) hold(pair addressPair, holder ref, at schema.Location) {
	for _, k := range pair.all() {
		k.holder = holder
		if k.id == 0 {
			k.location, k.autoDelete = at, true
			k.name = fmt.Sprintf("%s-%d", kindPrimaryIP, p.lastID+1)
			p.addPrimaryIP(k)
		}
	}
}

// release unassigns the primary IPs of a deleted holder, and deletes those with auto-delete.
func (p *project) release(holder ref) {
	for _, k := range slices.Clone(p.primaryIPs.rows) {
		switch {
		case k.holder != holder:
		case k.autoDelete:
			p.primaryIPs.remove(k.id)
		default:
			k.holder = ref{}
		}
	}
}

// PrimaryIPSeed describes an unassigned primary IP to create.
type PrimaryIPSeed struct {
	Name       string            `json:"name"`
	Type       string            `json:"type"`     // ipv4 (default) or ipv6
	Location   string            `json:"location"` // default fsn1
	Labels     map[string]string `json:"labels"`
	AutoDelete bool              `json:"auto_delete"`
}

// CreatePrimaryIP adds a primary IP to the project.
func (s *Simulator) CreatePrimaryIP(seed PrimaryIPSeed) (schema.PrimaryIP, error) {
	p, unlock := s.present()
	defer unlock()
	at := schema.IDOrName{Name: cmp.Or(seed.Location, p.catalog.locations[0].Name)}
	made, _, err := p.newPrimaryIP(primaryIPRequest{schema.PrimaryIPCreateRequest{
		Name: seed.Name, Type: cmp.Or(seed.Type, typeIPv4), Labels: &seed.Labels,
		AutoDelete: &seed.AutoDelete,
	}, &at})
	if err != nil {
		return schema.PrimaryIP{}, fmt.Errorf("creating primary IP %q: %w", seed.Name, err)
	}
	p.addPrimaryIP(made)
	return p.renderPrimaryIP(made), nil
}
