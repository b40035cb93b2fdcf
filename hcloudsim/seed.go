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
	made, err := p.newServer(serverRequest{
		Name: seed.Name, ServerType: schema.IDOrName{Name: cmp.Or(seed.Type, "cx22")},
		Location: &schema.IDOrName{Name: seed.Location},
		Image:    &schema.IDOrName{Name: seededImage}, Labels: &seed.Labels,
		PublicNet: publicNetRequest{EnableIPv4: new(!seed.NoIPv4), EnableIPv6: new(!seed.NoIPv6)},
	})
	if err != nil {
		return nil, err
	}
	if seed.PublicIPv4.IsValid() && !seed.NoIPv4 {
		made.addresses.ipv4 = &primaryIP{publicIP: newPublicIP(seed.PublicIPv4)}
	}
	if seed.PublicIPv6.IsValid() && !seed.NoIPv6 {
		made.addresses.ipv6 = &primaryIP{publicIP: newPublicIP(seed.PublicIPv6.Addr())}
	}
	made.status = cmp.Or(seed.Status, statusRunning)
	if made.status != statusRunning && made.status != statusOff {
		return nil, errInvalid("status", "must be %s or %s", statusRunning, statusOff)
	}
	if seed.Network != 0 {
		n, err := must(&p.networks, kindNetwork, seed.Network)
		if err != nil {
			return nil, err
		}
		requested := place{aliases: rendered(seed.AliasIPs, netip.Addr.String)}
		if seed.PrivateIP.IsValid() {
			requested.ip = new(seed.PrivateIP.String())
		}
		if _, err := p.attach(made, n, requested); err != nil {
			return nil, err
		}
	}
	p.addServer(made)
	return made, nil
}

// DeleteServer removes a server, regardless of running actions.
func (s *Simulator) DeleteServer(id int64) error {
	p, unlock := s.present()
	defer unlock()
	gone, err := must(&p.servers, kindServer, id)
	if err == nil {
		p.removeServer(gone)
	}
	return err
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
		bits := max(seed.IPRange.Bits(), networkBitsMost)
		first := netip.PrefixFrom(seed.IPRange.Masked().Addr(), bits)
		seed.Subnets = []SubnetSeed{{IPRange: first}}
	}
	made, err := p.addNetwork(schema.NetworkCreateRequest{
		Name: seed.Name, IPRange: seed.IPRange.String(), Labels: &seed.Labels,
		ExposeRoutesToVSwitch: seed.ExposeRoutes,
		Subnets: rendered(seed.Subnets, func(s SubnetSeed) schema.NetworkSubnet {
			return schema.NetworkSubnet{
				Type: cmp.Or(s.Type, subnetCloud), IPRange: s.IPRange.String(),
				NetworkZone: cmp.Or(s.Zone, "eu-central"), VSwitchID: s.VSwitch,
			}
		}),
		Routes: rendered(seed.Routes, RouteSeed.request),
	})
	if err != nil {
		return schema.Network{}, fmt.Errorf("creating network %q: %w", seed.Name, err)
	}
	return p.renderNetwork(made), nil
}

func (r RouteSeed) request() schema.NetworkRoute {
	return schema.NetworkRoute{Destination: r.Destination.String(), Gateway: r.Gateway.String()}
}

// DeleteNetwork removes a network from the project.
func (s *Simulator) DeleteNetwork(id int64) error {
	p, unlock := s.present()
	defer unlock()
	gone, err := must(&p.networks, kindNetwork, id)
	if err == nil {
		p.removeNetwork(gone)
	}
	return err
}

// AddRoute adds a route to a network.
func (s *Simulator) AddRoute(network int64, seed RouteSeed) error {
	p, unlock := s.present()
	defer unlock()
	n, err := must(&p.networks, kindNetwork, network)
	if err == nil {
		_, err = p.placeRoute(n, seed.request())
	}
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
	r := first(n.routes, func(r *route) bool { return r.Destination == destination })
	if r == nil {
		return errNotFound("route", destination)
	}
	n.routes = without(n.routes, r)
	return nil
}
