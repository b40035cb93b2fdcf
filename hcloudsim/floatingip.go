package hcloudsim

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

const kindFloatingIP = "floating_ip"

// floatingIP is a public address that is assignable to any server of its network zone.
type floatingIP struct {
	base
	publicIP
	description string
	home        schema.Location
	server      int64 // 0: unassigned
}

func (f *floatingIP) ref() ref { return ref{kindFloatingIP, f.id} }

func (p *project) renderFloatingIP(f *floatingIP) schema.FloatingIP {
	out := schema.FloatingIP{
		ID: f.id, Name: f.name, Description: new(f.description), Created: f.created,
		Type: f.kind(), IP: f.text(), HomeLocation: f.home, Labels: cloneLabels(f.labels),
		Protection: schema.FloatingIPProtection{Delete: f.protected},
	}
	if f.server != 0 {
		out.Server = new(f.server)
	}
	out.DNSPtr = rendered(f.entries(), func(e dnsEntry) schema.FloatingIPDNSPtr {
		return schema.FloatingIPDNSPtr(e)
	})
	return out
}

func floatingIPKind() kind[*floatingIP] {
	return kind[*floatingIP]{
		name: kindFloatingIP, plural: "floating_ips",
		rows:    func(p *project) *table[*floatingIP] { return &p.floatingIPs },
		body:    func(p *project, f *floatingIP) any { return p.renderFloatingIP(f) },
		unnamed: true,
		// Names and labels do not affect routing.
		editableAlways: true,
		edit: func(f *floatingIP, req updateRequest) error {
			set(&f.description, req.Description)
			return nil
		},
		mayDelete: func(_ *project, f *floatingIP) error {
			if f.server == 0 {
				return nil
			}
			return errRefused("must_be_unassigned",
				"the floating IP is assigned to server %d", f.server)
		},
	}
}

func floatingIPOperations() []operation {
	k := floatingIPKind()
	return k.operations(create(k, (*call).createFloatingIP),
		on(k, "assign", (*call).assignFloatingIP),
		on(k, "unassign", (*call).unassignFloatingIP),
		on(k, "change_dns_ptr", func(_ *call, f *floatingIP, req pointerRequest) (change, error) {
			return f.changePointer(f.net, req)
		}),
		k.protection(),
	)
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
func (c *call) createFloatingIP(req floatingIPRequest) (*floatingIP, map[string]any, error) {
	f, s, err := c.newFloatingIP(req)
	if err != nil {
		return nil, nil, err
	}
	c.addFloatingIP(f)
	if s == nil {
		return f, nil, nil
	}
	return f, map[string]any{"action": c.renderAction(c.begin(c.floatingAssignment(f, s)))}, nil
}

// newFloatingIP validates a request. It returns the new floating IP, which has no ID yet, and the
// server to assign it to, if any.
func (p *project) newFloatingIP(req floatingIPRequest) (f *floatingIP, s *server, err error) {
	f = &floatingIP{}
	name := fmt.Sprintf("floating-ip-%d", p.lastID+1)
	set(&name, req.Name)
	set(&f.description, req.Description)
	if f.base, err = floatingIPKind().new(p, name, req.Labels); err != nil {
		return nil, nil, err
	}
	if f.publicIP, err = p.allocate(req.Type); err != nil {
		return nil, nil, err
	}
	switch {
	case req.HomeLocation == nil && req.Server == nil:
		return nil, nil, errInvalid("home_location", "is required without a server")
	case req.HomeLocation != nil:
		f.home, err = p.catalog.location("home_location", *req.HomeLocation)
	}
	if err != nil || req.Server == nil {
		return f, nil, err
	}
	if s, err = must(&p.servers, kindServer, *req.Server); err != nil {
		return nil, nil, err
	}
	if req.HomeLocation == nil {
		f.home = s.location
	}
	return f, s, p.mayAssignFloatingIP(f, s)
}

func (p *project) addFloatingIP(f *floatingIP) {
	f.base = p.newBase(f.base)
	p.floatingIPs.add(f)
}

func (p *project) mayAssignFloatingIP(f *floatingIP, s *server) error {
	switch {
	case f.home.NetworkZone != s.location.NetworkZone:
		return errInvalid("server", "server %d is in network zone %s, the floating IP in %s",
			s.id, s.location.NetworkZone, f.home.NetworkZone)
	case f.server != 0 && p.opts.RefuseReassign:
		return errRefused("floating_ip_assigned",
			"the floating IP is already assigned to server %d", f.server)
	}
	return p.idle(s.ref())
}

// floatingAssignment assigns a floating IP, unless the server is deleted before the action ends.
func (p *project) floatingAssignment(f *floatingIP, s *server) change {
	return change{command: "assign_floating_ip", about: []ref{f.ref(), s.ref()}, finish: func() {
		if _, there := p.servers.get(s.id); there {
			f.server = s.id
		}
	}}
}

func (c *call) assignFloatingIP(f *floatingIP, req struct{ Server *int64 }) (change, error) {
	if req.Server == nil {
		return change{}, errInvalid("server", "is required")
	}
	s, err := must(&c.servers, kindServer, *req.Server)
	if err != nil {
		return change{}, err
	}
	return c.floatingAssignment(f, s), c.mayAssignFloatingIP(f, s)
}

func (c *call) unassignFloatingIP(f *floatingIP, _ struct{}) (change, error) {
	if f.server == 0 {
		return change{}, errInvalid("server", "the floating IP is assigned to no server")
	}
	at := ref{kindServer, f.server}
	return change{
		command: "unassign_floating_ip",
		about:   []ref{f.ref(), at},
		finish:  func() { f.server = 0 },
	}, c.idle(at)
}

// FloatingIPSeed describes a floating IP to create.
type FloatingIPSeed struct {
	Name         string            `json:"name"`
	Description  string            `json:"description"`
	Type         string            `json:"type"`          // ipv4 (default) or ipv6
	HomeLocation string            `json:"home_location"` // default fsn1
	Labels       map[string]string `json:"labels"`
	// IP is the IPv4 address or the IPv6 /64; zero: allocated.
	IP netip.Prefix `json:"ip"`
	// Server is the ID of the assigned server; 0: unassigned.
	Server int64 `json:"-"`
}

// CreateFloatingIP adds a floating IP to the project. It returns the same *[Error] as the API.
func (s *Simulator) CreateFloatingIP(seed FloatingIPSeed) (schema.FloatingIP, error) {
	p, unlock := s.present()
	defer unlock()
	made, err := p.seedFloatingIP(seed)
	if err != nil {
		return schema.FloatingIP{}, fmt.Errorf("creating floating IP %q: %w", seed.Name, err)
	}
	return p.renderFloatingIP(made), nil
}

func (p *project) seedFloatingIP(seed FloatingIPSeed) (*floatingIP, error) {
	req := floatingIPRequest{
		Type: cmp.Or(seed.Type, typeIPv4), Description: &seed.Description, Labels: &seed.Labels,
		HomeLocation: &schema.IDOrName{Name: cmp.Or(seed.HomeLocation, p.catalog.locations[0].Name)},
	}
	if seed.Name != "" {
		req.Name = &seed.Name
	}
	if seed.Server != 0 {
		req.Server = &seed.Server
	}
	made, _, err := p.newFloatingIP(req)
	if err != nil {
		return nil, err
	}
	if seed.IP.IsValid() {
		wanted := newPublicIP(seed.IP.Addr())
		if wanted.kind() != req.Type || wanted.net != seed.IP.Masked() {
			return nil, errInvalid("ip", "must be an IPv4 /32 or an IPv6 /64, as type says")
		}
		same := func(f *floatingIP) bool { return f.net == wanted.net }
		if slices.ContainsFunc(p.floatingIPs.rows, same) {
			return nil, errTaken("ip", "the address")
		}
		made.publicIP = wanted
	}
	made.server = seed.Server
	p.addFloatingIP(made)
	return made, nil
}

// AssignFloatingIP assigns a floating IP at once, bypassing the API; server 0 unassigns it.
func (s *Simulator) AssignFloatingIP(id, server int64) error {
	p, unlock := s.present()
	defer unlock()
	f, err := must(&p.floatingIPs, kindFloatingIP, id)
	if err == nil && server != 0 {
		_, err = must(&p.servers, kindServer, server)
	}
	if err == nil {
		f.server = server
	}
	return err
}
