package hcloudsim

import "github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

// The methods below return the API's current view without a request, for assertions. The results
// are copies that don't change; callers must not modify what they point to.

// Servers returns all servers, oldest first.
func (s *Simulator) Servers() []schema.Server {
	return all(s, (*project).renderServer, serverKind())
}

// Server returns the server with an ID.
func (s *Simulator) Server(id int64) (schema.Server, bool) {
	return one(s, (*project).renderServer, serverKind(), id)
}

// UserData returns a server's user data, which the API and snapshots never contain.
func (s *Simulator) UserData(id int64) (userData string, known bool) {
	return one(s, func(_ *project, s *server) string { return s.userData }, serverKind(), id)
}

// Networks returns all networks, oldest first.
func (s *Simulator) Networks() []schema.Network {
	return all(s, (*project).renderNetwork, networkKind())
}

// Network returns the network with an ID.
func (s *Simulator) Network(id int64) (schema.Network, bool) {
	return one(s, (*project).renderNetwork, networkKind(), id)
}

// LoadBalancers returns all load balancers, oldest first.
func (s *Simulator) LoadBalancers() []schema.LoadBalancer {
	return all(s, (*project).renderLoadBalancer, loadBalancerKind())
}

// LoadBalancer returns the load balancer with an ID.
func (s *Simulator) LoadBalancer(id int64) (schema.LoadBalancer, bool) {
	return one(s, (*project).renderLoadBalancer, loadBalancerKind(), id)
}

// PrimaryIPs returns all primary IPs, assigned or not, oldest first.
func (s *Simulator) PrimaryIPs() []schema.PrimaryIP {
	return all(s, (*project).renderPrimaryIP, primaryIPKind())
}

// PrimaryIP returns the primary IP with an ID.
func (s *Simulator) PrimaryIP(id int64) (schema.PrimaryIP, bool) {
	return one(s, (*project).renderPrimaryIP, primaryIPKind(), id)
}

// FloatingIPs returns all floating IPs, oldest first.
func (s *Simulator) FloatingIPs() []schema.FloatingIP {
	return all(s, (*project).renderFloatingIP, floatingIPKind())
}

// FloatingIP returns the floating IP with an ID.
func (s *Simulator) FloatingIP(id int64) (schema.FloatingIP, bool) {
	return one(s, (*project).renderFloatingIP, floatingIPKind(), id)
}

func all[R resource, J any](s *Simulator, render func(*project, R) J, of kind[R]) []J {
	p, unlock := s.present()
	defer unlock()
	return rendered(of.rows(p).rows, func(r R) J { return render(p, r) })
}

func one[R resource, J any](
	s *Simulator, render func(*project, R) J, of kind[R], id int64,
) (shown J, known bool) {
	p, unlock := s.present()
	defer unlock()
	r, known := of.rows(p).get(id)
	if known {
		shown = render(p, r)
	}
	return shown, known
}

func rendered[R, J any](rows []R, render func(R) J) []J {
	out := make([]J, 0, len(rows))
	for _, r := range rows {
		out = append(out, render(r))
	}
	return out
}
