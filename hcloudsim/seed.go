package hcloudsim

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// Seeding is immediate and outside the API: no request, no action, and no
// lock in the way. The rules hold here too.

// ServerSeed describes a server that shall exist. Only the name is needed.
type ServerSeed struct {
	Name     string            `json:"name"`
	Type     string            `json:"type"`     // server type; default cx22
	Location string            `json:"location"` // default the type's first
	Labels   map[string]string `json:"labels"`
	Status   string            `json:"status"` // running, the default, or off

	Network   int64        `json:"-"`          // attached to this network, if not 0
	PrivateIP netip.Addr   `json:"private_ip"` // there; zero: the first that is free
	AliasIPs  []netip.Addr `json:"alias_ips"`

	PublicIPv4 netip.Addr   `json:"public_ipv4"` // zero: one is chosen
	PublicIPv6 netip.Prefix `json:"public_ipv6"` // the /64; zero: one is chosen
	NoIPv4     bool         `json:"no_ipv4"`     // no public address of that family
	NoIPv6     bool         `json:"no_ipv6"`
}

// CreateServer puts a server into the project. Its error is an *[Error], the
// same that the API would answer.
func (s *Simulator) CreateServer(seed ServerSeed) (schema.Server, error) {
	p, unlock := s.present()
	defer unlock()
	made, err := p.seedServer(seed)
	if err != nil {
		return schema.Server{}, fmt.Errorf("creating server %q: %w", seed.Name, err)
	}
	return p.renderServer(made), nil
}

// seededImage is what seeded servers were created from.
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

// DeleteServer takes a server out of the project, whatever is happening to it.
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

// NetworkSeed describes a network that shall exist.
type NetworkSeed struct {
	Name    string            `json:"name"`
	IPRange netip.Prefix      `json:"ip_range"`
	Labels  map[string]string `json:"labels"`
	Subnets []SubnetSeed      `json:"subnets"` // none: one, the range's first /24
	Routes  []RouteSeed       `json:"routes"`
	// ExposeRoutes to the vSwitch that a subnet is coupled with.
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

// CreateNetwork puts a network into the project.
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

// DeleteNetwork takes a network out of the project.
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

// AddRoute enters a route into a network.
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

// DeleteRoute takes a route out of a network, by its destination.
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

// PrimaryIPSeed describes a primary IP that shall exist, assigned to nobody.
type PrimaryIPSeed struct {
	Name       string            `json:"name"`
	Type       string            `json:"type"`     // ipv4, the default, or ipv6
	Location   string            `json:"location"` // default fsn1
	Labels     map[string]string `json:"labels"`
	AutoDelete bool              `json:"auto_delete"`
}

// CreatePrimaryIP puts a primary IP into the project.
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
