package routes_test

import (
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/test/bench/routes/simcluster"
)

// event is a kind of event in a cluster.
type event struct {
	name string
	do   func(*schedule)
}

func events() []event {
	return []event{
		{"a Node joins", (*schedule).join},
		{"a server is renamed", renameServer},
		{"a Node comes back under another name", renameNode},
		{"a server is given back", giveBack},
		{"a Node is deleted by hand, its server lives on", deleteNode},
		{"a server moves to another address", move},
		{"some kubelets fall silent, and lists come in part", partialLists},
		{"some kubelets fall silent, and lists come empty", emptyLists},
		{"some kubelets fall silent, and lists fail", failingLists},
		{"a server vanishes between two pages", vanish},
		{"the token is one of another project", otherProject},
		{"everything fails for a while", outage},
		{"replies to writes get lost", lostReplies},
		{"cold restart, all NotReady", coldRestart},
		{"leadership is lost in mid-write", loseLeadership},
		{"the next leader's cache is old", oldCache},
	}
}

func (s *schedule) inject(f hcloudsim.Fault) {
	s.note("fault %+v", f)
	s.must(s.l.Sim.Inject(f))
}

// silence makes about half of the kubelets unresponsive, until a later time.
func (s *schedule) silence() {
	for _, name := range s.members {
		if s.rng.IntN(2) == 0 {
			s.must(s.l.API.SetReady(name, false))
		}
	}
	s.respondAgain(time.Duration(20+s.rng.IntN(90)) * time.Second)
}

// respondAgain makes the kubelets of all current members responsive again after a while.
func (s *schedule) respondAgain(after time.Duration) {
	members := slices.Clone(s.members)
	time.AfterFunc(after, func() {
		for _, name := range members {
			_ = s.l.API.SetReady(name, true) // it may have left
		}
	})
}

func renameServer(s *schedule) {
	id, name := s.server(s.member()), fmt.Sprint("renamed-", s.made)
	s.made++
	_, _, err := s.api.Server.Update(s.t.Context(), &hcloud.Server{ID: id}, hcloud.ServerUpdateOpts{
		Name: name,
	})
	s.must(ignoreFaults(err))
	s.silence()
}

// ignoreFaults: the administrator's requests can fail too, applied or not; both are fine.
func ignoreFaults(error) error { return nil }

func renameNode(s *schedule) {
	old := s.member()
	id, name := s.server(old), fmt.Sprint("named-", s.made)
	s.made++
	s.must(s.l.API.Remove(old))
	s.leave(old)
	_, err := s.l.Register(s.t.Context(), simcluster.Machine{Name: name}, id)
	s.must(err)
	s.members = append(s.members, name)
}

func giveBack(s *schedule) {
	if len(s.members) < 4 {
		return
	}
	name := s.member()
	s.must(s.l.Sim.DeleteServer(s.server(name)))
	s.leave(name)
	s.must(s.l.API.SetReady(name, false))
}

func deleteNode(s *schedule) {
	if len(s.members) < 4 {
		return
	}
	name := s.member()
	s.leave(name)
	s.must(s.l.API.Remove(name))
}

// move detaches a server and attaches it again with another address.
func move(s *schedule) {
	server, network := &hcloud.Server{ID: s.server(s.member())}, &hcloud.Network{ID: s.l.Network.ID}
	_, _, err := s.api.Server.DetachFromNetwork(s.t.Context(), server,
		hcloud.ServerDetachFromNetworkOpts{Network: network})
	s.must(ignoreFaults(err))
	rest(time.Duration(s.rng.IntN(60)) * time.Second)
	for range 5 { // the network may be busy
		_, _, err = s.api.Server.AttachToNetwork(s.t.Context(), server, hcloud.ServerAttachToNetworkOpts{
			Network: network, IP: net.IPv4(10, 0, 200, byte(1+s.rng.IntN(250))),
		})
		if err == nil {
			return
		}
		rest(700 * time.Millisecond)
	}
}

func partialLists(s *schedule) {
	s.silence()
	s.inject(hcloudsim.Fault{Match: "GET /servers", Times: 1 + s.rng.IntN(40), PartialList: true})
}

func emptyLists(s *schedule) {
	s.silence()
	s.inject(hcloudsim.Fault{Match: "GET /servers", Times: 1 + s.rng.IntN(20), EmptyList: true})
}

func failingLists(s *schedule) {
	s.silence()
	kinds := []hcloudsim.Fault{
		{Status: 500},
		{Status: 502, NotJSON: true},
		{Status: 404, NotJSON: true},
		{Status: 429},
		{TornBody: true},
		{DropBeforeApply: true},
	}
	f := kinds[s.rng.IntN(len(kinds))]
	f.Match, f.Times = []string{"GET /servers", "GET /servers/{id}", "GET /networks/{id}", "GET /actions"}[s.rng.IntN(4)], 1+s.rng.IntN(20)
	s.inject(f)
}

func vanish(s *schedule) {
	if len(s.others) > 0 {
		s.mu.Lock()
		s.vanishing = append(s.vanishing, s.others[0])
		s.mu.Unlock()
		s.others = s.others[1:]
	}
	s.silence()
}

func otherProject(s *schedule) {
	s.silence()
	s.inject(hcloudsim.Fault{Times: 1 + s.rng.IntN(60), OtherProject: true})
}

func outage(s *schedule) {
	s.silence()
	s.inject(hcloudsim.Fault{
		Times: 1 + s.rng.IntN(60), Status: []int{429, 500, 503, 504}[s.rng.IntN(4)],
	})
	s.join()
}

func lostReplies(s *schedule) {
	s.inject(hcloudsim.Fault{Match: "POST /networks/{rest...}", Times: 1 + s.rng.IntN(4), DropAfterApply: true})
	s.join()
	s.join()
}

func coldRestart(s *schedule) {
	s.m.Stop()
	s.ready(false)
	s.lead()
	s.respondAgain(time.Duration(s.rng.IntN(60)) * time.Second)
}

func loseLeadership(s *schedule) {
	s.join()
	if s.rng.IntN(2) == 0 {
		move(s)
	}
	rest(time.Duration(s.rng.IntN(700)) * time.Millisecond)
	s.m.Stop()
	s.lead()
}

// oldCache makes the next leader start with a list of Nodes that lacks one.
func oldCache(s *schedule) {
	name := s.member()
	s.m.Stop()
	s.l.API.HideFromCaches(name)
	s.lead()
	s.l.API.HideFromCaches("")
	rest(time.Duration(s.rng.IntN(90)) * time.Second)
	s.must(s.l.API.Edit(name, func(n *corev1.Node) { n.Labels = map[string]string{"seen": "again"} }))
}
