package hcloudsim

import "github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

// The methods below return the API's current view without a request, for assertions. The results
// are copies that don't change; callers must not modify what they point to.

// Servers returns all servers, oldest first.
func (s *Simulator) Servers() []schema.Server {
	p, unlock := s.present()
	defer unlock()
	return rendered(p.servers.rows, p.renderServer)
}

// Server returns the server with an ID.
func (s *Simulator) Server(id int64) (schema.Server, bool) {
	p, unlock := s.present()
	defer unlock()
	return renderedOne(&p.servers, id, p.renderServer)
}

// UserData returns a server's user data, which the API and snapshots never contain.
func (s *Simulator) UserData(server int64) (userData string, known bool) {
	p, unlock := s.present()
	defer unlock()
	found, known := p.servers.get(server)
	if !known {
		return "", false
	}
	return found.userData, true
}

// Networks returns all networks, oldest first.
func (s *Simulator) Networks() []schema.Network {
	p, unlock := s.present()
	defer unlock()
	return rendered(p.networks.rows, p.renderNetwork)
}

// Network returns the network with an ID.
func (s *Simulator) Network(id int64) (schema.Network, bool) {
	p, unlock := s.present()
	defer unlock()
	return renderedOne(&p.networks, id, p.renderNetwork)
}

// LoadBalancers returns all load balancers, oldest first.
func (s *Simulator) LoadBalancers() []schema.LoadBalancer {
	p, unlock := s.present()
	defer unlock()
	return rendered(p.loadBalancers.rows, p.renderLoadBalancer)
}

// LoadBalancer returns the load balancer with an ID.
func (s *Simulator) LoadBalancer(id int64) (schema.LoadBalancer, bool) {
	p, unlock := s.present()
	defer unlock()
	return renderedOne(&p.loadBalancers, id, p.renderLoadBalancer)
}

// PrimaryIPs returns all primary IPs, assigned or not, oldest first.
func (s *Simulator) PrimaryIPs() []schema.PrimaryIP {
	p, unlock := s.present()
	defer unlock()
	return rendered(p.primaryIPs.rows, p.renderPrimaryIP)
}

// PrimaryIP returns the primary IP with an ID.
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
