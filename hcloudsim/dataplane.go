package hcloudsim

import (
	"cmp"
	"crypto/tls"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// DataPlane is the state that traffic depends on at one point in time: the input of a router and
// of a load balancer's proxy. It shares nothing with the simulator.
type DataPlane struct {
	Servers       []PlaneServer       `json:"servers"`
	Networks      []PlaneNetwork      `json:"networks"`
	LoadBalancers []PlaneLoadBalancer `json:"load_balancers"`
	FloatingIPs   []PlaneFloatingIP   `json:"floating_ips"`
}

// PlaneServer is a server with its public addresses.
type PlaneServer struct {
	ID   int64        `json:"id"`
	IPv4 netip.Addr   `json:"ipv4"` // zero: no IPv4 address
	IPv6 netip.Prefix `json:"ipv6"` // the /64; zero: no IPv6 network
	// Running reports whether the server has power and has finished initializing and starting.
	Running bool `json:"running"`
}

// PlaneNetwork is a network with its members. It omits objects that an action is still creating.
type PlaneNetwork struct {
	ID      int64          `json:"id"`
	IPRange netip.Prefix   `json:"ip_range"`
	Gateway netip.Addr     `json:"gateway"`
	Subnets []netip.Prefix `json:"subnets"`
	// VSwitches are the subnets that are coupled with a vSwitch.
	VSwitches []PlaneVSwitch `json:"vswitches"`
	// ExposeRoutes reports whether the network's routes are exposed to the gateways of VSwitches.
	ExposeRoutes bool        `json:"expose_routes_to_vswitch"`
	Routes       []RouteSeed `json:"routes"`
	// Building are routes of running actions, with [Options.Foretell].
	Building []PlaneBuilding `json:"building,omitempty"`
	Members  []PlaneMember   `json:"members"`
}

// PlaneBuilding is a route that an action is adding, with the end time of the action.
type PlaneBuilding struct {
	RouteSeed
	Ends time.Time `json:"ends"`
}

// PlaneVSwitch is a subnet that is coupled with a vSwitch.
type PlaneVSwitch struct {
	ID      int64        `json:"id"` // ID of the vSwitch
	Range   netip.Prefix `json:"range"`
	Gateway netip.Addr   `json:"gateway"`
}

// PlaneMember is a server or a load balancer in a network.
type PlaneMember struct {
	Kind    string       `json:"type"` // server or load_balancer
	ID      int64        `json:"id"`
	IP      netip.Addr   `json:"ip"`
	Aliases []netip.Addr `json:"alias_ips"`
}

// PlaneLoadBalancer is a load balancer with its services and targets.
type PlaneLoadBalancer struct {
	ID        int64      `json:"id"`
	Algorithm string     `json:"algorithm"`
	Public    bool       `json:"public"` // listens on IPv4 and IPv6
	IPv4      netip.Addr `json:"ipv4"`
	IPv6      netip.Addr `json:"ipv6"`
	Network   int64      `json:"network"`    // 0: not attached
	PrivateIP netip.Addr `json:"private_ip"` // in Network
	// IPv6Source is the source of connections and checks to IPv6, see [Options.IPv6Source].
	IPv6Source netip.Addr                   `json:"ipv6_source"`
	Services   []schema.LoadBalancerService `json:"services"`
	Targets    []PlaneTarget                `json:"targets"`
}

// PlaneTarget is one address that a load balancer sends traffic to. A label selector results in
// one PlaneTarget per selected server.
type PlaneTarget struct {
	TargetID
	Address netip.Addr `json:"address"` // zero: unreachable
}

// PlaneFloatingIP is a floating IP.
type PlaneFloatingIP struct {
	ID     int64        `json:"id"`
	Net    netip.Prefix `json:"net"`    // an IPv4 address, or an IPv6 /64
	Server int64        `json:"server"` // 0: unassigned
}

// DataPlane returns the current state that traffic depends on.
func (s *Simulator) DataPlane() DataPlane {
	p, unlock := s.present()
	defer unlock()
	return p.dataPlane()
}

// KeyPairs returns the certificates of a load balancer's service with their keys, for TLS
// termination, in the order of the service's certificates. It omits certificates that are not
// issued or were restored from a snapshot, which has no keys.
func (s *Simulator) KeyPairs(loadBalancer int64, listenPort int) (pairs []tls.Certificate) {
	p, unlock := s.present()
	defer unlock()
	lb, ok := p.loadBalancers.get(loadBalancer)
	if !ok {
		return nil
	}
	service := lb.serviceOn(listenPort)
	if service == nil || service.HTTP == nil {
		return nil
	}
	for _, id := range service.HTTP.Certificates {
		if k, ok := p.certificates.get(id); ok && k.key != "" {
			pair, _ := tls.X509KeyPair([]byte(*k.PEM), []byte(k.key)) // upload has checked it
			pairs = append(pairs, pair)
		}
	}
	return pairs
}

func (p *project) dataPlane() DataPlane {
	return DataPlane{
		Servers: rendered(p.servers.rows, func(s *server) PlaneServer {
			running := s.status == statusRunning
			return PlaneServer{ID: s.id, IPv4: s.ipv4(), IPv6: s.ipv6(), Running: running}
		}),
		Networks:      rendered(p.networks.rows, p.planeNetwork),
		LoadBalancers: rendered(p.loadBalancers.rows, p.planeLoadBalancer),
		FloatingIPs: rendered(p.floatingIPs.rows, func(f *floatingIP) PlaneFloatingIP {
			return PlaneFloatingIP{ID: f.id, Net: f.net, Server: f.server}
		}),
	}
}

func (p *project) planeNetwork(n *network) PlaneNetwork {
	out := PlaneNetwork{
		ID: n.id, IPRange: n.ipRange, Gateway: n.gateway(), ExposeRoutes: n.exposeRoutes,
	}
	for _, s := range shown(p, n.subnets) {
		out.Subnets = append(out.Subnets, s.ipRange)
		if s.isVSwitch() {
			vSwitch := PlaneVSwitch{ID: s.vSwitch, Range: s.ipRange, Gateway: s.gateway(n)}
			out.VSwitches = append(out.VSwitches, vSwitch)
		}
	}
	for _, r := range shown(p, n.routes) {
		out.Routes = append(out.Routes, *r)
	}
	for _, a := range p.actions.running {
		r, isRoute := a.adds.(*route)
		if p.opts.Foretell && isRoute && a.failure == nil && slices.Contains(n.routes, r) {
			out.Building = append(out.Building, PlaneBuilding{*r, a.ends})
		}
	}
	for m := range p.members(n.id) {
		if !p.creating[m.attachment] {
			out.Members = append(out.Members, PlaneMember{
				Kind: m.kind, ID: m.id, IP: m.attachment.ip,
				Aliases: slices.Clone(m.attachment.aliases),
			})
		}
	}
	return out
}

func (p *project) planeLoadBalancer(lb *loadBalancer) PlaneLoadBalancer {
	out := PlaneLoadBalancer{
		ID: lb.id, Algorithm: lb.algorithm, Public: lb.public, IPv4: lb.ipv4, IPv6: lb.ipv6,
		IPv6Source: cmp.Or(p.opts.IPv6Source, lb.ipv6),
	}
	if a := lb.private; a != nil && !p.creating[a] {
		out.Network, out.PrivateIP = a.network, a.ip
	}
	for _, s := range shown(p, lb.services) {
		out.Services = append(out.Services, s.LoadBalancerService)
	}
	for _, to := range p.resolve(lb) {
		out.Targets = append(out.Targets, to.PlaneTarget)
	}
	return out
}

// equal is called for every change, so it uses reflection only where fields hold pointers.
func (d DataPlane) equal(other DataPlane) bool {
	return slices.Equal(d.Servers, other.Servers) &&
		slices.EqualFunc(d.Networks, other.Networks, PlaneNetwork.equal) &&
		slices.Equal(d.FloatingIPs, other.FloatingIPs) &&
		reflect.DeepEqual(d.LoadBalancers, other.LoadBalancers)
}

func (n PlaneNetwork) equal(other PlaneNetwork) bool {
	return n.ID == other.ID && n.IPRange == other.IPRange && n.ExposeRoutes == other.ExposeRoutes &&
		slices.Equal(n.Subnets, other.Subnets) && slices.Equal(n.VSwitches, other.VSwitches) &&
		slices.Equal(n.Routes, other.Routes) && slices.Equal(n.Building, other.Building) &&
		slices.EqualFunc(n.Members, other.Members, func(a, b PlaneMember) bool {
			return a.Kind == b.Kind && a.ID == b.ID && a.IP == b.IP && slices.Equal(a.Aliases, b.Aliases)
		})
}

// observer delivers changes to Options.OnChange. The Simulator's mutex guards it.
type observer struct {
	last       DataPlane
	queue      []DataPlane
	delivering bool
	alarm      *time.Timer // for changes due to time alone
}

func (s *Simulator) observe() {
	if s.opts.OnChange == nil || !s.project.touched {
		return
	}
	s.project.touched = false
	if now := s.project.dataPlane(); !now.equal(s.observer.last) {
		s.observer.last = now
		s.observer.queue = append(s.observer.queue, now)
	}
	if s.observer.alarm != nil {
		s.observer.alarm.Stop()
	}
	if running := s.project.actions.running; len(running) > 0 {
		// OnChange is pushed and does not poll, so it is the only feature that needs a timer.
		s.observer.alarm = time.AfterFunc(time.Until(running[0].ends), func() {
			_, unlock := s.present()
			unlock()
		})
	}
}

// unlock releases the simulator's lock, and then delivers the queued changes to OnChange. If
// another goroutine is already delivering, that goroutine delivers them.
func (s *Simulator) unlock() {
	s.observe()
	if s.observer.delivering || len(s.observer.queue) == 0 {
		s.mu.Unlock()
		return
	}
	s.observer.delivering = true
	for len(s.observer.queue) > 0 {
		next := s.observer.queue[0]
		s.observer.queue = s.observer.queue[1:]
		s.mu.Unlock()
		s.opts.OnChange(next)
		s.mu.Lock()
	}
	s.observer.delivering = false
	s.mu.Unlock()
}
