package routes_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/test/bench/routes/simcluster"
)

// schedule is half an hour of a cluster with many faults, all of them random from one seed.
type schedule struct {
	t       *testing.T
	l       *simcluster.Cluster
	rng     *rand.Rand
	o       simcluster.Options
	m       *simcluster.Manager
	api     *hcloud.Client // an administrator's
	members []string       // Nodes that should live, oldest first
	others  []int64        // servers without Nodes
	made    int
	trace   []string

	mu        sync.Mutex
	vanishing []int64 // deleted as soon as a page of servers has been read
}

// newSchedule creates an idle cluster. Every fourth project has so many servers that their list has
// two pages.
func newSchedule(t *testing.T, seed uint64, o simcluster.Options) *schedule {
	pace := simcluster.Pace()
	pace.AttachmentLimit, pace.RateLimit, pace.Seed = hcloudsim.Unlimited, 1_000_000, seed
	s := &schedule{t: t, l: setUp(t, pace, 0), rng: rand.New(rand.NewPCG(seed, 7)), o: o}
	s.api = administrator(s.l)
	s.l.Meddle = s.meddle
	if seed%4 == 0 {
		for i := range 47 {
			server, err := s.l.Rent(simcluster.Machine{Name: fmt.Sprint("other-", i), Detached: true})
			s.must(err)
			s.others = append(s.others, server.ID)
		}
	}
	for range 4 + s.rng.IntN(5) {
		s.join()
	}
	s.lead()
	rest(30 * time.Second)
	return s
}

func (s *schedule) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("%v\n%s", err, strings.Join(s.trace, "\n"))
	}
}

func (s *schedule) note(format string, args ...any) {
	s.trace = append(s.trace, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// meddle deletes a server between two pages of a list.
func (s *schedule) meddle(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		answer, err := next.RoundTrip(r)
		if r.URL.Path == "/v1/servers" {
			s.mu.Lock()
			gone := s.vanishing
			s.vanishing = nil
			s.mu.Unlock()
			for _, id := range gone {
				_ = s.l.Sim.DeleteServer(id) // it may be deleted already
			}
		}
		return answer, err
	})
}

func (s *schedule) join() {
	name := fmt.Sprint("node-", s.made)
	s.made++
	add(s.t, s.l, simcluster.Machine{Name: name})
	s.members = append(s.members, name)
	s.note("%s joins", name)
}

// lead starts a manager, repeatedly while the cloud rejects it, as a Deployment does. In the end
// the fault is repaired.
func (s *schedule) lead() {
	for attempt := range 20 {
		if attempt == 10 {
			s.l.Sim.ClearFaults()
		}
		m, err := s.l.Start(s.t.Context(), s.o)
		if err == nil {
			s.m = m
			return
		}
		s.note("the manager ends at its start: %v", err)
		rest(10 * time.Second)
	}
	s.t.Fatalf("no manager starts\n%s", strings.Join(s.trace, "\n"))
}

func (s *schedule) member() string { return s.members[s.rng.IntN(len(s.members))] }

// leave removes a Node from those that should live.
func (s *schedule) leave(name string) {
	s.members = slices.DeleteFunc(s.members, func(m string) bool { return m == name })
}

func (s *schedule) server(name string) int64 {
	for _, node := range s.nodes() {
		if node.Name == name {
			server, _ := s.l.ServerOf(&node)
			return server.ID
		}
	}
	s.t.Fatalf("node %s is gone: %q\n%s", name, s.l.Harm(), strings.Join(s.trace, "\n"))
	return 0
}

func (s *schedule) nodes() []corev1.Node {
	nodes, err := s.l.API.Nodes(context.WithoutCancel(s.t.Context()))
	s.must(err)
	return nodes
}

// run runs a number of events, and then lets the cloud recover.
func (s *schedule) run(steps int) {
	for range steps {
		event := events()[s.rng.IntN(len(events()))]
		s.note("%s", event.name)
		event.do(s)
		rest(time.Duration(s.rng.IntN(60_000)) * time.Millisecond)
		if len(s.l.Harm()) > 0 {
			break
		}
	}
	s.note("the cloud recovers")
	s.l.Sim.ClearFaults()
	s.ready(true)
	rest(10 * time.Minute)
	s.m.Stop()
	rest(time.Minute) // a list of servers in flight outlives its manager
}

// ready makes the kubelets of all members responsive, or none.
func (s *schedule) ready(is bool) {
	for _, name := range s.members {
		_ = s.l.API.SetReady(name, is) // verdict detects a deleted Node
	}
}

// verdict returns the schedule's violations.
func (s *schedule) verdict() []string {
	found := s.l.Harm()
	table := s.l.Routes()
	there := map[string]bool{}
	for _, node := range s.nodes() {
		there[node.Name] = true
		server, lives := s.l.ServerOf(&node)
		address := s.l.AddressOf(server)
		prefixes, err := kube.PodCIDRs(&node)
		s.must(err)
		if lives && address.IsValid() &&
			(table[prefixes[0]] != address || simcluster.Says(&node) != reachable) {
			found = append(found, fmt.Sprintf("in the end %s at %s has the route %s via %s and says %q", node.Name, address, prefixes[0], table[prefixes[0]], simcluster.Says(&node)))
		}
	}
	for _, name := range s.members {
		if !there[name] {
			found = append(found, fmt.Sprintf("in the end node %s is gone", name))
		}
	}
	return found
}

// runSchedules runs schedules of seeds and returns the effects of the harmful ones.
func runSchedules(
	t *testing.T, from, to uint64, o func(*simcluster.Cluster) simcluster.Options,
) map[uint64]string {
	harmful := map[uint64]string{}
	for seed := from; seed < to; seed++ {
		synctest.Test(t, func(t *testing.T) {
			s := newSchedule(t, seed, simcluster.Options{Lifecycle: true})
			if o != nil {
				s.m.Stop()
				s.o = o(s.l)
				s.lead()
			}
			s.run(8)
			if found := s.verdict(); len(found) > 0 {
				harmful[seed] = strings.Join(slices.Concat(found, s.trace), "\n")
			}
		})
	}
	return harmful
}

// A thousand schedules: no route of a living Node is deleted, no Node with a living server is
// deleted, no route has a wrong gateway, and everything is correct in the end.
func TestAThousandSchedules(t *testing.T) {
	const count, parts = 1000, 4
	for part := range uint64(parts) {
		t.Run(fmt.Sprint("part ", part), func(t *testing.T) {
			t.Parallel()
			for seed, story := range runSchedules(t, part*count/parts, (part+1)*count/parts, nil) {
				t.Errorf("seed %d:\n%s", seed, story)
			}
		})
	}
}
