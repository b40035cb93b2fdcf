package hcloudsim

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

const kindFloatingIP = "floating_ip"

// floatingIP is a public IPv4 address or IPv6 /64, assignable to any server of its network zone.
type floatingIP struct {
	base
	description string
	kind        string
	net         netip.Prefix // an IPv4 address, or an IPv6 /64
	home        schema.Location
	server      int64 // 0: unassigned
	pointers    pointers
}

func (f *floatingIP) ref() ref { return ref{kindFloatingIP, f.id} }

func (p *project) renderFloatingIP(f *floatingIP) schema.FloatingIP {
	description := f.description
	out := schema.FloatingIP{
		ID: f.id, Name: f.name, Description: &description, Created: f.created, Type: f.kind, IP: f.net.String(),
		HomeLocation: f.home, Labels: cloneLabels(f.labels), DNSPtr: []schema.FloatingIPDNSPtr{},
		Protection: schema.FloatingIPProtection{Delete: f.protected},
	}
	if f.server != 0 {
		server := f.server
		out.Server = &server
	}
	if f.kind == typeIPv4 {
		out.IP = f.net.Addr().String()
		out.DNSPtr = append(out.DNSPtr, schema.FloatingIPDNSPtr{IP: out.IP, DNSPtr: f.pointers.of(f.net.Addr())})
		return out
	}
	for _, entry := range f.pointers.inside(f.net) {
		out.DNSPtr = append(out.DNSPtr, schema.FloatingIPDNSPtr(entry))
	}
	return out
}

func (p *project) floatingOn(s *server) []int64 {
	ids := []int64{}
	for _, f := range p.floatingIPs.rows {
		if f.server == s.id {
			ids = append(ids, f.id)
		}
	}
	return ids
}

// landFloatingIPs unassigns the floating IPs of a deleted server.
func (p *project) landFloatingIPs(server int64) {
	for _, f := range p.floatingIPs.rows {
		if f.server == server {
			f.server = 0
		}
	}
}

// judgeFloatingIP validates a request. It returns the new floating IP, which has no ID or address
// yet, and the server to assign it to, if any.
func (p *project) judgeFloatingIP(req floatingIPRequest) (*floatingIP, *server, error) {
	if exceeds(len(p.floatingIPs.rows), p.opts.FloatingIPLimit) {
		return nil, nil, errLimit("floating_ip_limit", p.opts.FloatingIPLimit)
	}
	if req.Type != typeIPv4 && req.Type != typeIPv6 {
		return nil, nil, errInvalid("type", "must be one of %s, %s", typeIPv4, typeIPv6)
	}
	f := &floatingIP{kind: req.Type}
	if set(&f.name, req.Name); req.Name != nil {
		if err := checkName(f.name); err != nil {
			return nil, nil, err
		}
		if err := p.floatingIPs.nameFree(f.name, 0); err != nil {
			return nil, nil, err
		}
	}
	set(&f.description, req.Description)
	var err error
	if f.labels, err = newLabels(req.Labels); err != nil {
		return nil, nil, err
	}
	if req.HomeLocation != nil {
		home, known := lookup(p.catalog.locations, *req.HomeLocation, locationKey)
		if !known {
			return nil, nil, errInvalid("home_location", "location does not exist")
		}
		f.home = home
	}
	if req.Server == nil {
		if req.HomeLocation == nil {
			return nil, nil, errInvalid("home_location", "is required without a server")
		}
		return f, nil, nil
	}
	s, err := must(&p.servers, kindServer, *req.Server)
	if err != nil {
		return nil, nil, err
	}
	if req.HomeLocation == nil {
		f.home = s.location
	}
	return f, s, p.mayFloat(f, s)
}

// addFloatingIP adds f with a new ID, and with a generated name and address if they are missing.
func (p *project) addFloatingIP(f *floatingIP) {
	if !f.net.IsValid() {
		ipv4, ipv6 := p.public.next()
		if f.net = ipv6; f.kind == typeIPv4 {
			f.net = netip.PrefixFrom(ipv4, ipv4.BitLen())
		}
	}
	f.base = p.newBase(f.name, f.labels)
	if f.name == "" {
		f.name = fmt.Sprintf("floating-ip-%d", f.id)
	}
	p.floatingIPs.add(f)
}

func (p *project) mayFloat(f *floatingIP, s *server) error {
	switch {
	case f.home.NetworkZone != s.location.NetworkZone:
		return errInvalid("server", "server %d is in network zone %s, the floating IP in %s", s.id, s.location.NetworkZone, f.home.NetworkZone)
	case f.server != 0 && p.opts.RefuseReassign:
		return errRefused("floating_ip_assigned", "the floating IP is already assigned to server %d", f.server)
	}
	return p.idle(s.ref())
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
		Type: seed.Type, Description: &seed.Description, Labels: &seed.Labels,
		HomeLocation: &schema.IDOrName{Name: seed.HomeLocation},
	}
	if req.Type == "" {
		req.Type = typeIPv4
	}
	if seed.HomeLocation == "" {
		req.HomeLocation.Name = p.catalog.locations[0].Name
	}
	if seed.Name != "" {
		req.Name = &seed.Name
	}
	if seed.Server != 0 {
		req.Server = &seed.Server
	}
	made, _, err := p.judgeFloatingIP(req)
	if err != nil {
		return nil, err
	}
	if seed.IP.IsValid() {
		made.net = seed.IP.Masked()
		bits := 64
		if made.kind == typeIPv4 {
			bits = 32
		}
		if made.net.Addr().Is4() != (made.kind == typeIPv4) || made.net.Bits() != bits {
			return nil, errInvalid("ip", "must be an IPv4 /32 or an IPv6 /64, as type says")
		}
		if slices.ContainsFunc(p.floatingIPs.rows, func(f *floatingIP) bool { return f.net == made.net }) {
			return nil, errTaken("ip", "the address")
		}
	}
	made.server = seed.Server
	p.addFloatingIP(made)
	return made, nil
}

// FloatingIPs returns all floating IPs, oldest first.
func (s *Simulator) FloatingIPs() []schema.FloatingIP {
	p, unlock := s.present()
	defer unlock()
	return rendered(p.floatingIPs.rows, p.renderFloatingIP)
}

// FloatingIP returns the floating IP with an ID.
func (s *Simulator) FloatingIP(id int64) (schema.FloatingIP, bool) {
	p, unlock := s.present()
	defer unlock()
	return renderedOne(&p.floatingIPs, id, p.renderFloatingIP)
}

// AssignFloatingIP assigns a floating IP at once, bypassing the API; server 0 unassigns it.
func (s *Simulator) AssignFloatingIP(id, server int64) error {
	p, unlock := s.present()
	defer unlock()
	f, err := must(&p.floatingIPs, kindFloatingIP, id)
	if err != nil {
		return err
	}
	if server != 0 {
		if _, err := must(&p.servers, kindServer, server); err != nil {
			return err
		}
	}
	f.server = server
	return nil
}

// PlaneFloatingIP is a floating IP in the [DataPlane].
type PlaneFloatingIP struct {
	ID     int64        `json:"id"`
	Net    netip.Prefix `json:"net"`    // an IPv4 address, or an IPv6 /64
	Server int64        `json:"server"` // 0: unassigned
}

func (p *project) planeFloatingIP(f *floatingIP) PlaneFloatingIP {
	return PlaneFloatingIP{ID: f.id, Net: f.net, Server: f.server}
}
