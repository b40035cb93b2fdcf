package schedule

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/internal/kube"
	ipamcontroller "github.com/underlay-ccm/underlay/ipam/controller"
	routecontroller "github.com/underlay-ccm/underlay/routes/controller"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard()) // informers log every fault
	os.Exit(m.Run())
}

const (
	machines = 6  // fewer than the pool has prefixes
	steps    = 24 // of one schedule
)

// machine is a server that is or was a Node.
type machine struct {
	name   string
	server int64 // 0: none
	joined bool  // its Node exists
}

// schedule is one random sequence of events. Everything depends on the seed except the order of
// goroutines.
type schedule struct {
	t    *testing.T
	seed uint64
	rng  *rand.Rand
	*invariants
	api     *apiServer
	cloud   *project
	fleet   [machines]machine
	others  []int64                     // servers that are no Nodes
	foreign map[netip.Prefix]netip.Addr // foreign routes

	leader  *manager
	former  []*manager // frozen, or about to notice
	started int
	holder  atomic.Int64 // number of the manager with the lease

	mu     sync.Mutex // guards the state for requests
	luck   *rand.Rand
	rarely int // one of so many requests fails; 0: none
	outage time.Time
	which  string // target of the outage: "api", "cloud"
}

// run runs one schedule and returns its violations.
func run(t *testing.T, seed uint64) (broken []string, seen map[string]int, history string) {
	synctest.Test(t, func(t *testing.T) {
		s := newSchedule(t, seed)
		s.lead()
		for range 4 {
			s.join()
		}
		pass(30 * time.Second)
		for range steps {
			s.step()
			pass(time.Duration(s.rng.IntN(12_000)) * time.Millisecond)
			s.watchLeader()
		}
		s.calm()
		s.ending()
		s.end()
		broken, seen, history = s.verdicts(), s.detected, strings.Join(s.log, "\n")
	})
	return broken, seen, history
}

func newSchedule(t *testing.T, seed uint64) *schedule {
	s := &schedule{
		t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), luck: rand.New(rand.NewPCG(seed, 2)),
		invariants: newInvariants(), foreign: map[netip.Prefix]netip.Addr{},
	}
	s.api = newAPIServer(s.nodeChanged)
	var err error
	if s.cloud, err = newProject(seed, s.cloudChanged); err != nil {
		t.Fatal(err)
	}
	for i := range s.fleet {
		s.fleet[i].name = fmt.Sprint("n", i)
	}
	s.rarely = 6 + s.rng.IntN(20)
	s.api.Lag = s.lag
	return s
}

// pass lets virtual time pass, and waits until everything due then has run.
func pass(d time.Duration) {
	time.Sleep(d) // virtual
	synctest.Wait()
}

// lead starts a manager, repeatedly while the cloud rejects it, as a Deployment does.
func (s *schedule) lead() {
	for range 100 {
		s.started++
		name := fmt.Sprint("m", s.started)
		number := int64(s.started)
		s.holder.Store(number)
		leading := func(context.Context) error {
			if s.holder.Load() != number {
				return errors.New("another manager has the lease")
			}
			return nil
		}
		m, err := start(s.t.Context(), name, s.started == 1, leading, func(p *process) way {
			return way{
				api:   &line{process: p, next: s.api, draw: s.drawing(name, "api")},
				cloud: &line{process: p, next: s.cloud.sim.Transport(), draw: s.drawing(name, "cloud"), heard: s.checkRequest},
			}
		})
		if err == nil {
			s.note("%s leads", name)
			s.leader = m
			s.excuse(time.Now().Add(leaseTime))
			return
		}
		s.note("%s ends at its start: %v", name, err)
		pass(5 * time.Second)
	}
	s.t.Fatalf("seed %d: no manager starts\n%s", s.seed, strings.Join(s.log, "\n"))
}

// watchLeader starts the next leader if the last one has exited by itself.
func (s *schedule) watchLeader() {
	if err := s.leader.failed(); err != nil {
		s.note("%s ends: %v", s.leader.name, err)
		s.leader.stop()
		pass(leaseTime)
		s.lead()
	}
}

// drawing returns the function that draws the fates of a manager's requests to a server.
func (s *schedule) drawing(manager, server string) func(*http.Request) fate {
	return func(req *http.Request) fate {
		what := s.draw(server, req.Method == http.MethodGet)
		if strings.HasSuffix(req.URL.Path, "/"+routecontroller.RecordName) {
			s.recording(what != fate{})
		}
		if *requests {
			s.note("%s %s %s %+v", manager, req.Method, req.URL.Path, what)
		}
		return what
	}
}

// draw returns the fate of a request.
func (s *schedule) draw(server string, reads bool) fate {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.which == server && time.Now().Before(s.outage) {
		return fate{refuse: []int{500, 502, 503, 504}[s.luck.IntN(4)]}
	}
	if s.rarely == 0 || s.luck.IntN(s.rarely) > 0 {
		return fate{}
	}
	switch roll := s.luck.IntN(8); {
	case roll < 2:
		return fate{refuse: []int{500, 503}[s.luck.IntN(2)]}
	case roll < 4:
		return fate{lose: true}
	case roll < 5 && !reads:
		return fate{late: time.Duration(1+s.luck.IntN(int(lateness/time.Millisecond))) * time.Millisecond}
	case roll < 7:
		return fate{hold: time.Duration(s.luck.IntN(30_000)) * time.Millisecond}
	}
	return fate{hold: time.Duration(s.luck.IntN(2_000)) * time.Millisecond}
}

// lag is the delay of the next watch event; negative: the stream breaks.
func (s *schedule) lag() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rarely == 0 {
		return 0
	}
	switch s.luck.IntN(12) {
	case 0:
		return -1
	case 1:
		return time.Duration(s.luck.IntN(4000)) * time.Millisecond
	}
	return 0
}

// calm ends all faults, and lets everything settle.
func (s *schedule) calm() {
	s.note("calm")
	s.mu.Lock()
	s.rarely, s.outage = 0, time.Time{}
	s.mu.Unlock()
	s.api.resume()
	for dst, via := range s.foreign {
		s.cloud.deleteRoute(dst, via)
	}
	clear(s.foreign)
	s.bury()
	s.leader.thaw()
	s.watchLeader()
	for range 15 {
		pass(time.Minute)
		s.watchLeader()
	}
}

// bury ends the former leaders.
func (s *schedule) bury() {
	for _, m := range s.former {
		m.die()
		m.stop()
	}
	s.former = nil
}

func (s *schedule) end() {
	s.leader.stop()
	pass(time.Minute) // a list of servers in flight outlives its manager
}

// ending checks the final state without faults: every Node has its podCIDRs and its route, and no
// other route or ledger entry remains.
func (s *schedule) ending() {
	table := s.cloud.table()
	names := map[string]bool{}
	s.api.Lock()
	all := s.api.nodes.All()
	s.api.Unlock()
	s.invariants.mu.Lock()
	defer s.invariants.mu.Unlock()
	for _, o := range all {
		node := o.(*corev1.Node)
		names[node.Name] = true
		m := s.nodes[node.Name]
		address := s.cloud.address(m.server)
		via, stands := table[m.podCIDR]
		switch {
		case len(m.all) != 2:
			s.find("in the end %s has the podCIDRs %v", node.Name, m.all)
		case address.IsValid() && (!stands || via != address || m.says != corev1.ConditionFalse):
			s.find("in the end %s at %s has the route %s via %s and NetworkUnavailable %v", node.Name, address, m.podCIDR, via, kube.Condition(node, corev1.NodeNetworkUnavailable))
		}
		if stands {
			delete(table, m.podCIDR)
		}
	}
	for dst, via := range table {
		if !s.ownerless(dst, via, s.api.data(routecontroller.RecordName)) {
			delete(table, dst)
		}
	}
	ledger := s.api.data(ipamcontroller.LedgerName)
	for _, key := range slices.Sorted(maps.Keys(ledger)) {
		if !strings.HasPrefix(key, "_") && !names[key] && !waitsForRoute(ledger[key], table) {
			s.find("in the end the ledger has %s, which is gone: %s", key, ledger[key])
		}
	}
}

// waitsForRoute reports whether the quarantine of an entry cannot end, because a route for the
// Node's former prefix exists.
func waitsForRoute(entry string, standing map[netip.Prefix]netip.Addr) bool {
	for dst := range standing {
		if strings.Contains(entry, dst.String()) {
			return true
		}
	}
	return false
}

// providerID sets a Node's provider ID, as the cloud's node controller does.
func (s *schedule) providerID(name string, server int64) {
	s.api.edit(name, func(node *corev1.Node) {
		if node.Spec.ProviderID == "" {
			node.Spec.ProviderID = kube.FormatProviderID(server)
		}
	})
}
