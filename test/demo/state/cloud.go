package state

import (
	"net/netip"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// Cloud is the part of the cloud that the demo shows.
type Cloud struct {
	Servers   []Server
	Routes    []Route // of the cluster's network
	Balancers []Balancer
}

// Server is a rented machine.
type Server struct {
	ID             int64
	Name           string
	Type, Location string
	PrivateIP      netip.Addr
}

// Route is a route of the network.
type Route struct {
	Dst netip.Prefix
	Via netip.Addr
}

// Balancer is a load balancer.
type Balancer struct {
	Type, Location string
	Labels         map[string]string
	Listeners      []Listener
	Targets        []Target
}

// Listener is a service of a load balancer: a port that it listens on.
type Listener struct {
	Port, NodePort int
	Check          Check
}

// Check is a listener's health check of targets.
type Check struct {
	Protocol string
	Port     int
	Path     string
}

// Target is a server behind a load balancer.
type Target struct {
	Server  int64
	Private bool   // reached through the network
	Health  string // the first listener's result
}

// CloudOf converts the API's objects.
func CloudOf(
	servers []schema.Server, network schema.Network, balancers []schema.LoadBalancer,
) Cloud {
	var c Cloud
	for _, s := range servers {
		c.Servers = append(c.Servers, serverOf(s, network.ID))
	}
	for _, r := range network.Routes {
		dst, err1 := netip.ParsePrefix(r.Destination)
		via, err2 := netip.ParseAddr(r.Gateway)
		if err1 == nil && err2 == nil {
			c.Routes = append(c.Routes, Route{Dst: dst, Via: via})
		}
	}
	for _, b := range balancers {
		c.Balancers = append(c.Balancers, balancerOf(b))
	}
	return c
}

func serverOf(s schema.Server, network int64) Server {
	server := Server{ID: s.ID, Name: s.Name, Type: s.ServerType.Name, Location: s.Location.Name}
	for _, attached := range s.PrivateNet {
		if attached.Network == network {
			server.PrivateIP, _ = netip.ParseAddr(attached.IP) // invalid: none
		}
	}
	return server
}

func balancerOf(b schema.LoadBalancer) Balancer {
	balancer := Balancer{Type: b.LoadBalancerType.Name, Location: b.Location.Name, Labels: b.Labels}
	for _, s := range b.Services {
		l := Listener{Port: s.ListenPort, NodePort: s.DestinationPort}
		if check := s.HealthCheck; check != nil {
			l.Check = Check{Protocol: check.Protocol, Port: check.Port}
			if check.HTTP != nil {
				l.Check.Path = check.HTTP.Path
			}
		}
		balancer.Listeners = append(balancer.Listeners, l)
	}
	for _, t := range b.Targets {
		if t.Server == nil {
			continue
		}
		target := Target{Server: t.Server.ID, Private: t.UsePrivateIP}
		for _, health := range t.HealthStatus {
			target.Health = health.Status
		}
		balancer.Targets = append(balancer.Targets, target)
	}
	return balancer
}

func (c Cloud) server(name string) (Server, bool) {
	for _, s := range c.Servers {
		if s.Name == name {
			return s, true
		}
	}
	return Server{}, false
}

// ownerLabel marks the load balancer of a Service by the Service's UID.
const ownerLabel = "underlay.dev/svc-"

// balancerOf finds a Service's load balancer.
func (c Cloud) balancerOf(s Service) (Balancer, bool) {
	for _, b := range c.Balancers {
		if _, owned := b.Labels[ownerLabel+s.UID]; owned {
			return b, true
		}
	}
	return Balancer{}, false
}

// String is the check in one expression.
func (c Check) String() string { return strings.ToUpper(c.Protocol) + " " + c.Path }
