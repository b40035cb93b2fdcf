package hcloudsim

import "github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

// Snapshots are what the API would show now, for assertions and without a
// request. They don't change any more; what they point to is not the caller's.

// Servers returns every server, oldest first.
func (s *Simulator) Servers() []schema.Server {
	p, unlock := s.present()
	defer unlock()
	return rendered(p.servers.rows, p.renderServer)
}

// Server returns one server.
func (s *Simulator) Server(id int64) (schema.Server, bool) {
	p, unlock := s.present()
	defer unlock()
	return renderedOne(&p.servers, id, p.renderServer)
}

// UserData returns what a server was given for its first boot. The API never shows it, and it is no
// part of a snapshot.
func (s *Simulator) UserData(server int64) (userData string, known bool) {
	p, unlock := s.present()
	defer unlock()
	found, known := p.servers.get(server)
	if !known {
		return "", false
	}
	return found.userData, true
}

// Networks returns every network, oldest first.
func (s *Simulator) Networks() []schema.Network {
	p, unlock := s.present()
	defer unlock()
	return rendered(p.networks.rows, p.renderNetwork)
}

// Network returns one network.
func (s *Simulator) Network(id int64) (schema.Network, bool) {
	p, unlock := s.present()
	defer unlock()
	return renderedOne(&p.networks, id, p.renderNetwork)
}

// LoadBalancers returns every load balancer, oldest first.
func (s *Simulator) LoadBalancers() []schema.LoadBalancer {
	p, unlock := s.present()
	defer unlock()
	return rendered(p.loadBalancers.rows, p.renderLoadBalancer)
}

// LoadBalancer returns one load balancer.
func (s *Simulator) LoadBalancer(id int64) (schema.LoadBalancer, bool) {
	p, unlock := s.present()
	defer unlock()
	return renderedOne(&p.loadBalancers, id, p.renderLoadBalancer)
}

// PrimaryIPs returns every primary IP, oldest first: those of servers and load balancers, and others
// that were created by themselves.
func (s *Simulator) PrimaryIPs() []schema.PrimaryIP {
	p, unlock := s.present()
	defer unlock()
	return rendered(p.primaryIPs.rows, p.renderPrimaryIP)
}

// PrimaryIP returns one primary IP.
func (s *Simulator) PrimaryIP(id int64) (schema.PrimaryIP, bool) {
	p, unlock := s.present()
	defer unlock()
	return renderedOne(&p.primaryIPs, id, p.renderPrimaryIP)
}

func rendered[R, J any](rows []R, render func(R) J) []J {
	out := make([]J, 0, len(rows))
	for _, r := range rows {
		out = append(out, render(r))
	}
	return out
}

func renderedOne[R resource, J any](t *table[R], id int64, render func(R) J) (J, bool) {
	r, ok := t.get(id)
	if !ok {
		var none J
		return none, false
	}
	return render(r), true
}
