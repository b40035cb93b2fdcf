package schedule

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// An event is a kind of event in the cluster, with its share in percent.
type event struct {
	share int
	name  string
	do    func(*schedule)
}

func events() []event {
	return []event{
		{16, "a machine joins", (*schedule).join},
		{10, "a Node and its server go", (*schedule).leave},
		{12, "a Node registers anew", (*schedule).registerAnew},
		{4, "a Node is deleted by hand, its server lives on", (*schedule).deleteNode},
		{6, "a stranger gets a Node's address", (*schedule).takeOver},
		{6, "a stranger's route appears, or goes", (*schedule).strangersRoute},
		{6, "a Node's route is removed by hand", (*schedule).removeRoute},
		{4, "a server moves", (*schedule).move},
		{6, "the leader ends in order", (*schedule).handOver},
		{6, "the leader is killed", (*schedule).kill},
		{7, "the leader freezes, another takes over", (*schedule).freeze},
		{3, "the leader freezes for a moment", (*schedule).hiccup},
		{5, "watches stall", (*schedule).stall},
		{5, "a server fails for a while", (*schedule).fail},
		{4, "nothing happens", func(*schedule) { pass(quarantine) }},
	}
}

// step runs one random event.
func (s *schedule) step() {
	roll := s.rng.IntN(100)
	for _, e := range events() {
		if roll -= e.share; roll < 0 {
			s.note("- %s", e.name)
			e.do(s)
			return
		}
	}
}

// some returns a machine that meets a condition, or nil.
func (s *schedule) some(holds func(machine) bool) *machine {
	for _, i := range s.rng.Perm(machines) {
		if holds(s.fleet[i]) {
			return &s.fleet[i]
		}
	}
	return nil
}

func whole(m machine) bool { return m.joined && m.server != 0 }

// join creates a server for a machine without one, and registers it.
func (s *schedule) join() {
	m := s.some(func(m machine) bool { return !m.joined })
	if m == nil {
		return
	}
	if m.server == 0 {
		id, err := s.cloud.rent(m.name, netip.Addr{})
		if err != nil {
			s.t.Fatal(err)
		}
		m.server = id
	}
	s.register(m)
}

// register creates the Node; its provider ID may be set later.
func (s *schedule) register(m *machine) {
	m.joined = true
	known := s.rng.IntN(2) == 0
	s.api.register(kubelet(m.name, m.server, s.cloud.address(m.server), known))
	if !known {
		name, server := m.name, m.server
		time.AfterFunc(time.Duration(s.rng.IntN(5000))*time.Millisecond, func() {
			s.providerID(name, server)
		})
	}
}

// leave deletes a server. Its Node is deleted before that or after.
func (s *schedule) leave() {
	m := s.some(whole)
	if m == nil {
		return
	}
	server := m.server
	drop := func() { _ = s.cloud.sim.DeleteServer(server) } // it exists
	if s.rng.IntN(2) == 0 {
		drop()
		s.soon(20)
		s.api.remove(m.name)
	} else {
		s.api.remove(m.name)
		s.soon(60)
		drop()
	}
	m.server, m.joined = 0, false
}

// soon lets up to this number of seconds pass, or none.
func (s *schedule) soon(seconds int) {
	if s.rng.IntN(3) > 0 {
		pass(time.Duration(s.rng.IntN(seconds*1000)) * time.Millisecond)
	}
}

func (s *schedule) registerAnew() {
	m := s.some(whole)
	if m == nil {
		return
	}
	s.api.remove(m.name)
	s.soon(30)
	s.register(m)
}

func (s *schedule) deleteNode() {
	if m := s.some(whole); m != nil {
		s.api.remove(m.name)
		m.joined = false
	}
}

// takeOver deletes a Node's server, and assigns its address to a server that is no Node.
func (s *schedule) takeOver() {
	m := s.some(whole)
	if m == nil {
		return
	}
	address := s.cloud.address(m.server)
	_ = s.cloud.sim.DeleteServer(m.server) // it exists
	m.server = 0
	s.soon(20)
	id, err := s.cloud.rent(m.name+"-heir-"+time.Now().Format("150405"), address)
	if err != nil {
		s.note("the address is taken: %v", err)
	} else {
		s.others = append(s.others, id)
	}
	s.soon(30)
	s.api.remove(m.name)
	m.joined = false
}

// strangersRoute adds a route in the pool to a server that is no Node, or removes one.
func (s *schedule) strangersRoute() {
	for _, dst := range slices.SortedFunc(maps.Keys(s.foreign), netip.Prefix.Compare) {
		s.cloud.deleteRoute(dst, s.foreign[dst])
		delete(s.foreign, dst)
		return
	}
	free := s.cloud.free()
	if len(free) == 0 {
		return
	}
	if len(s.others) == 0 {
		id, err := s.cloud.rent("stranger", netip.Addr{})
		if err != nil {
			s.t.Fatal(err)
		}
		s.others = append(s.others, id)
	}
	dst, via := free[s.rng.IntN(len(free))], s.cloud.address(s.others[s.rng.IntN(len(s.others))])
	s.cloud.addRoute(dst, via)
	s.foreign[dst] = via
}

// removeRoute removes a living Node's route; some Nodes are recreated right then.
func (s *schedule) removeRoute() {
	m := s.some(whole)
	if m == nil {
		return
	}
	address := s.cloud.address(m.server)
	for dst, via := range s.cloud.table() {
		if via == address {
			s.cloud.deleteRoute(dst, via)
		}
	}
	if s.rng.IntN(2) == 0 {
		s.api.remove(m.name)
		s.soon(5)
		s.register(m)
	}
}

// move gives a Node's server another address, which its kubelet reports.
func (s *schedule) move() {
	m := s.some(whole)
	if m == nil {
		return
	}
	to := netip.AddrFrom4([4]byte{10, 0, 200, byte(1 + s.rng.IntN(250))})
	s.cloud.move(m.server, to, time.Duration(s.rng.IntN(20))*time.Second)
	s.api.edit(m.name, func(node *corev1.Node) {
		node.Status.Addresses = internalIP(s.cloud.address(m.server))
	})
}

func (s *schedule) handOver() {
	s.leader.stop()
	s.soon(2)
	s.lead()
}

func (s *schedule) kill() {
	s.leader.die()
	s.leader.stop()
	pass(leaseTime)
	s.lead()
}

// freeze freezes the leader; another takes over when its lease has expired; some time later it
// resumes, sends its pending requests, and detects that it no longer leads.
func (s *schedule) freeze() {
	frozen := s.leader
	frozen.freeze()
	pass(leaseTime)
	s.lead()
	s.former = append(s.former, frozen)
	ends := time.Duration(s.rng.IntN(60_000)) * time.Millisecond
	time.AfterFunc(ends, func() {
		frozen.thaw()
		time.AfterFunc(lastWords, frozen.die)
	})
}

// hiccup freezes the leader for less than its lease.
func (s *schedule) hiccup() {
	s.leader.freeze()
	pass(time.Duration(s.rng.IntN(8000)) * time.Millisecond)
	s.leader.thaw()
}

func (s *schedule) stall() {
	s.api.stall()
	time.AfterFunc(time.Duration(s.rng.IntN(30_000))*time.Millisecond, s.api.resume)
}

// fail makes every request to the API server or to the cloud fail for a while.
func (s *schedule) fail() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.which = []string{"api", "cloud"}[s.rng.IntN(2)]
	s.outage = time.Now().Add(time.Duration(s.rng.IntN(40_000)) * time.Millisecond)
	s.excuse(s.outage)
}
