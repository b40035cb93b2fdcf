package hcloudsim

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// Seeding takes effect at once, without a request, action or lock. The API's rules apply.

// ServerSeed describes a server to create. Only the name is required.
type ServerSeed struct {
	Name     string            `json:"name"`
	Type     string            `json:"type"`     // server type; default cx22
	Location string            `json:"location"` // default: the type's first location
	Labels   map[string]string `json:"labels"`
	Status   string            `json:"status"` // running (default) or off

	Network   int64        `json:"-"`          // ID of the network to attach to; 0: not attached
	PrivateIP netip.Addr   `json:"private_ip"` // address in Network; zero: first free address
	AliasIPs  []netip.Addr `json:"alias_ips"`

	PublicIPv4 netip.Addr   `json:"public_ipv4"` // zero: allocated
	PublicIPv6 netip.Prefix `json:"public_ipv6"` // the /64; zero: allocated
	NoIPv4     bool         `json:"no_ipv4"`     // no public IPv4 address
	NoIPv6     bool         `json:"no_ipv6"`
}

// CreateServer adds a server to the project. It returns the same *[Error] as the API.
func (s *Simulator) CreateServer(seed ServerSeed) (schema.Server, error) {
	p, unlock := s.present()
	defer unlock()
	made, err := p.seedServer(seed)
	if err != nil {
		return schema.Server{}, fmt.Errorf("creating server %q: %w", seed.Name, err)
	}
	return p.renderServer(made), nil
}

// seededImage is the image of seeded servers.
const seededImage = "ubuntu-24.04"

func (p *project) seedServer(seed ServerSeed) (*server, error) {
	if seed.Type == "" {
		seed.Type = "cx22"
	}
	made, err := p.newServer(serverRequest{
		Name: seed.Name, ServerType: schema.IDOrName{Name: seed.Type}, Location: seed.Location,
		Image: &schema.IDOrName{Name: seededImage}, Labels: &seed.Labels,
	})
	if err != nil {
		return nil, err
	}
	switch {
	case seed.NoIPv4:
		made.addresses.ipv4 = nil
	case seed.PublicIPv4.IsValid():
		made.addresses.ipv4 = newIPv4(seed.PublicIPv4)
	}
	switch {
	case seed.NoIPv6:
		made.addresses.ipv6 = nil
	case seed.PublicIPv6.IsValid():
		made.addresses.ipv6 = newIPv6(seed.PublicIPv6.Masked())
	}
	switch seed.Status {
	case "":
	case statusRunning, statusOff:
		made.status = seed.Status
	default:
		return nil, errInvalid("status", "must be %s or %s", statusRunning, statusOff)
	}
	if seed.Network != 0 {
		n, err := must(&p.networks, kindNetwork, seed.Network)
		if err != nil {
			return nil, err
		}
		if _, err := p.attach(made, n, seed.place()); err != nil {
			return nil, err
		}
	}
	made.base = p.newBase(made.name, made.labels)
	p.servers.add(made)
	p.hold(made.addresses, made.ref(), made.location)
	return made, nil
}

func (seed ServerSeed) place() place {
	var wish place
	if seed.PrivateIP.IsValid() {
		ip := seed.PrivateIP.String()
		wish.ip = &ip
	}
	for _, alias := range seed.AliasIPs {
		wish.aliases = append(wish.aliases, alias.String())
	}
	return wish
}

// DeleteServer removes a server, regardless of running actions.
func (s *Simulator) DeleteServer(id int64) error {
	p, unlock := s.present()
	defer unlock()
	gone, err := must(&p.servers, kindServer, id)
	if err != nil {
		return err
	}
	p.removeServer(gone)
	return nil
}

// NetworkSeed describes a network to create.
type NetworkSeed struct {
	Name    string            `json:"name"`
	IPRange netip.Prefix      `json:"ip_range"`
	Labels  map[string]string `json:"labels"`
	Subnets []SubnetSeed      `json:"subnets"` // default: the range's first /24
	Routes  []RouteSeed       `json:"routes"`
	// ExposeRoutes exposes the routes to the vSwitches coupled with the subnets.
	ExposeRoutes bool `json:"expose_routes_to_vswitch"`
}

// SubnetSeed describes a subnet.
type SubnetSeed struct {
	IPRange netip.Prefix `json:"ip_range"`
	Type    string       `json:"type"`         // default cloud
	Zone    string       `json:"network_zone"` // default eu-central
	VSwitch int64        `json:"vswitch_id"`   // for type vswitch
}

// RouteSeed describes a route of a network.
type RouteSeed struct {
	Destination netip.Prefix `json:"destination"`
	Gateway     netip.Addr   `json:"gateway"`
}

// CreateNetwork adds a network to the project.
func (s *Simulator) CreateNetwork(seed NetworkSeed) (schema.Network, error) {
	p, unlock := s.present()
	defer unlock()
	if len(seed.Subnets) == 0 && seed.IPRange.IsValid() {
		first := netip.PrefixFrom(seed.IPRange.Masked().Addr(), max(seed.IPRange.Bits(), networkBitsMost))
		seed.Subnets = []SubnetSeed{{IPRange: first}}
	}
	req := schema.NetworkCreateRequest{
		Name: seed.Name, IPRange: seed.IPRange.String(), Labels: &seed.Labels, ExposeRoutesToVSwitch: seed.ExposeRoutes,
	}
	for _, sub := range seed.Subnets {
		req.Subnets = append(req.Subnets, sub.request())
	}
	for _, r := range seed.Routes {
		req.Routes = append(req.Routes, r.request())
	}
	made, err := p.createNetwork(req)
	if err != nil {
		return schema.Network{}, fmt.Errorf("creating network %q: %w", seed.Name, err)
	}
	return p.renderNetwork(made), nil
}

func (s SubnetSeed) request() schema.NetworkSubnet {
	out := schema.NetworkSubnet{Type: s.Type, IPRange: s.IPRange.String(), NetworkZone: s.Zone, VSwitchID: s.VSwitch}
	if out.Type == "" {
		out.Type = subnetCloud
	}
	if out.NetworkZone == "" {
		out.NetworkZone = "eu-central"
	}
	return out
}

func (r RouteSeed) request() schema.NetworkRoute {
	return schema.NetworkRoute{Destination: r.Destination.String(), Gateway: r.Gateway.String()}
}

// DeleteNetwork removes a network from the project.
func (s *Simulator) DeleteNetwork(id int64) error {
	p, unlock := s.present()
	defer unlock()
	gone, err := must(&p.networks, kindNetwork, id)
	if err != nil {
		return err
	}
	p.removeNetwork(gone)
	return nil
}

// AddRoute adds a route to a network.
func (s *Simulator) AddRoute(network int64, seed RouteSeed) error {
	p, unlock := s.present()
	defer unlock()
	n, err := must(&p.networks, kindNetwork, network)
	if err != nil {
		return err
	}
	_, err = p.placeRoute(n, seed.request())
	return err
}

// DeleteRoute removes the route with a destination from a network.
func (s *Simulator) DeleteRoute(network int64, destination netip.Prefix) error {
	p, unlock := s.present()
	defer unlock()
	n, err := must(&p.networks, kindNetwork, network)
	if err != nil {
		return err
	}
	for _, r := range n.routes {
		if r.destination == destination {
			n.drop(r)
			return nil
		}
	}
	return errNotFound("route", destination)
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
	req := primaryIPRequest{Location: &schema.IDOrName{Name: cmp.Or(seed.Location, p.catalog.locations[0].Name)}}
	req.PrimaryIPCreateRequest = schema.PrimaryIPCreateRequest{
		Name: seed.Name, Type: cmp.Or(seed.Type, typeIPv4), Labels: &seed.Labels, AutoDelete: &seed.AutoDelete,
	}
	made, _, err := p.judgePrimaryIP(req)
	if err != nil {
		return schema.PrimaryIP{}, fmt.Errorf("creating primary IP %q: %w", seed.Name, err)
	}
	p.addPrimaryIP(made)
	return p.renderPrimaryIP(made), nil
}
