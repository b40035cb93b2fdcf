package hetzner_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/hetzner"
	"github.com/underlay-ccm/underlay/lb"
	"github.com/underlay-ccm/underlay/routes"
)

// The kinds of the scenario's work, by priority.
const (
	urgentWork     = "urgent"     // route and load balancer writes
	normalWork     = "normal"     // lookups of a server, new lists of servers
	backgroundWork = "background" // checks for drift
)

var works = []string{urgentWork, normalWork, backgroundWork}

// deed is one completed piece of work.
type deed struct {
	work        string
	began, done time.Time
	err         error
}

// phase is a part of the scenario. Its faults are intended.
type phase struct {
	name     string
	from, to time.Time
	refused  bool    // the API rejects everything
	rushed   *[]deed // the work that waited for its end
}

// scenario is a hundred controllers that work in one project.
type scenario struct {
	t      *testing.T
	sim    *hcloudsim.Simulator
	client *hetzner.Client
	token  string // a file
	phases []*phase

	rushed []*hetzner.Network // with changes of routes only in a rush
	server int64

	mu    sync.Mutex
	deeds []deed
}

// The work of a hundred controllers, more than the project's limit: no response is ever 429, alone
// or beside a program that uses half of the budget. Then the API rejects everything for a minute in
// one way after the other, and work continues without a restart, the most urgent first.
func TestAHundredControllersShareTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScenario(t)
		ctx, stop := context.WithCancel(t.Context())
		var working sync.WaitGroup
		s.work(ctx, &working)

		s.during("alone", time.Hour)
		working.Go(func() { s.otherProgram(ctx) })
		s.during("another takes half", time.Hour)
		outage := func(name string, begin, end func()) {
			begin()
			s.during(name, 55*time.Second).refused = true
			rushed := s.rush(ctx, &working)
			s.stretch(5 * time.Second)
			end()
			s.during("after it", 30*time.Minute).rushed = rushed
		}
		outage("429 for a minute", func() { s.refuse(http.StatusTooManyRequests) }, s.sim.ClearFaults)
		outage("503 for a minute", func() { s.refuse(http.StatusServiceUnavailable) }, s.sim.ClearFaults)
		outage("token revoked", func() { s.sim.SetToken("new") }, func() { s.rotate("new") })

		stop()
		working.Wait()
		time.Sleep(time.Hour) // until a list for several callers has completed
		s.report()
		s.check()
	})
}

func newScenario(t *testing.T) *scenario {
	s := &scenario{t: t, token: filepath.Join(t.TempDir(), "token")}
	s.rotate("old")
	s.sim = hcloudsim.New(hcloudsim.Options{Token: "old", Latency: 20 * time.Millisecond, ActionTime: 400 * time.Millisecond, ActionJitter: 400 * time.Millisecond})
	s.client = client(t, s.sim, func() (string, error) {
		token, err := os.ReadFile(s.token)
		return string(token), err
	})
	return s
}

func (s *scenario) rotate(token string) {
	// As kubelet does: the file is replaced atomically.
	if err := errors.Join(os.WriteFile(s.token+".new", []byte(token), 0o600), os.Rename(s.token+".new", s.token)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scenario) refuse(status int) {
	if err := s.sim.Inject(hcloudsim.Fault{Times: -1, Status: status}); err != nil {
		s.t.Fatal(err)
	}
}

// during runs a phase.
func (s *scenario) during(name string, d time.Duration) *phase {
	p := &phase{name: name, from: time.Now()}
	s.phases = append(s.phases, p)
	s.stretch(d)
	return p
}

// stretch extends the current phase.
func (s *scenario) stretch(d time.Duration) {
	time.Sleep(d)
	s.phases[len(s.phases)-1].to = time.Now()
}

// do does a piece of work and records its result.
func (s *scenario) do(ctx context.Context, work string, do func(context.Context) error) error {
	d := deed{work: work, began: time.Now()}
	err := do(ctx)
	d.done, d.err = time.Now(), err
	if ctx.Err() == nil {
		s.mu.Lock()
		s.deeds = append(s.deeds, d)
		s.mu.Unlock()
	}
	return err
}

// repeat calls do repeatedly, sooner after an error, as a controller's queue would.
func repeat(ctx context.Context, first, pause time.Duration, do func(context.Context) error) {
	for wait := first; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait + 1):
		}
		wait = pause
		if do(ctx) != nil {
			wait = min(pause, 10*time.Second)
		}
	}
}

// work starts 25 controllers of each kind.
func (s *scenario) work(ctx context.Context, working *sync.WaitGroup) {
	networks := tables(s.t, s.sim, s.client, 36)
	s.rushed, networks = networks[:10], networks[10:]
	servers := s.client.Servers(networks[25].Last().ID)
	seed(s.t, s.sim, networks[25].Last().ID, 30)
	s.server = s.sim.Servers()[0].ID
	for i := range 25 {
		first := time.Duration(i) * time.Second
		working.Go(func() {
			write := routeWriter(networks[i])
			repeat(ctx, first, 5*time.Minute, func(ctx context.Context) error {
				return s.do(ctx, urgentWork, write)
			})
		})
		working.Go(func() { repeat(ctx, first, 8*time.Minute, s.balancerWriter(fmt.Sprintf("service-%d", i))) })
		working.Go(func() {
			repeat(ctx, first, time.Minute, func(ctx context.Context) error {
				return s.do(ctx, normalWork, func(ctx context.Context) error {
					if i%5 > 0 {
						return s.lookUp(ctx)
					}
					_, err := servers.List(ctx, time.Now())
					return err
				})
			})
		})
		working.Go(func() {
			repeat(ctx, first, 2*time.Second, func(ctx context.Context) error {
				return s.do(ctx, backgroundWork, s.lookForDrift)
			})
		})
	}
}

func (s *scenario) lookUp(ctx context.Context) error {
	_, err := s.client.Servers(0).Get(ctx, s.server)
	return err
}

func (s *scenario) lookForDrift(ctx context.Context) error {
	_, err := s.client.LoadBalancers().List(ctx, "drift", true)
	return err
}

// rush is the work that waits when an outage ends: ten of each kind, the most urgent arrives last.
// Each is retried until it is done.
func (s *scenario) rush(ctx context.Context, working *sync.WaitGroup) *[]deed {
	var mu sync.Mutex
	var done []deed
	start := func(work string, do func(context.Context) error) {
		working.Go(func() {
			d := deed{work: work, began: time.Now()}
			for do(ctx) != nil {
				select {
				case <-ctx.Done():
					return
				case <-time.After(2 * time.Second):
				}
			}
			d.done = time.Now()
			mu.Lock()
			done = append(done, d)
			mu.Unlock()
		})
	}
	for i := range 10 {
		start(backgroundWork, s.lookForDrift)
		time.Sleep(10 * time.Millisecond)
		start(normalWork, s.lookUp)
		time.Sleep(10 * time.Millisecond)
		start(urgentWork, toggle(s.rushed[i]))
	}
	return &done
}

// toggle adds or deletes a route, depending on the table at the first call, and reads before it
// decides, as routes.Table requires.
func toggle(table *hetzner.Network) func(context.Context) error {
	route, wanted, decided := entry("10.244.1.0/24", "10.0.0.2"), false, false
	return func(ctx context.Context) error {
		have, err := table.List(ctx)
		if err != nil {
			return err
		}
		standing := slices.Contains(have, route)
		if !decided {
			wanted, decided = !standing, true
		}
		switch {
		case standing == wanted:
			return nil
		case wanted:
			return table.Add(ctx, route)
		}
		return table.Delete(ctx, route, time.Time{})
	}
}

// routeWriter alternately adds and deletes a route; it reads only after a failure.
func routeWriter(table *hetzner.Network) func(context.Context) error {
	route, standing, sure := entry("10.244.1.0/24", "10.0.0.2"), false, true
	return func(ctx context.Context) error {
		if !sure {
			have, err := table.List(ctx)
			if err != nil {
				return err
			}
			standing = slices.Contains(have, route)
		}
		change := table.Add
		if standing {
			change = func(ctx context.Context, r routes.Route) error {
				return table.Delete(ctx, r, time.Time{})
			}
		}
		err := change(ctx, route)
		if sure = err == nil; sure {
			standing = !standing
		}
		return err
	}
}

// balancerWriter creates a load balancer and then changes it repeatedly.
func (s *scenario) balancerWriter(uid string) func(context.Context) error {
	balancers, owner := s.client.LoadBalancers(), lb.Owner{Cluster: "scenario", UID: uid}
	return func(ctx context.Context) error {
		have, err := balancers.Observe(ctx, owner)
		if err != nil {
			return err
		}
		var op lb.Op = lb.ChangeAlgorithm{Algorithm: lb.LeastConnections}
		switch {
		case !have.Exists():
			op = lb.Create{Spec: lb.Spec{Owner: owner, Name: uid, Type: "lb11", Location: "nbg1", Algorithm: lb.RoundRobin, Public: true}}
		case have.Algorithm == lb.LeastConnections:
			op = lb.ChangeAlgorithm{Algorithm: lb.RoundRobin}
		}
		return s.do(ctx, urgentWork, func(ctx context.Context) error {
			return balancers.Apply(ctx, have, op)
		})
	}
}

// otherProgram uses half of the project's limit.
func (s *scenario) otherProgram(ctx context.Context) {
	other := hcloud.NewClient(hcloud.WithEndpoint("http://cloud.test/v1"), hcloud.WithToken("old"), hcloud.WithApplication("other", "1"),
		hcloud.WithRetryOpts(hcloud.RetryOpts{}), hcloud.WithHTTPClient(&http.Client{
			Transport: s.sim.Transport(),
		}))
	repeat(ctx, 0, 2*time.Second, func(ctx context.Context) error {
		_, _, _ = other.SSHKey.List(ctx, hcloud.SSHKeyListOpts{}) // a short response
		return nil
	})
}
