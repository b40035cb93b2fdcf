package converge_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/underlay-ccm/underlay/internal/hcloudsim"
	"github.com/underlay-ccm/underlay/lb"
	"github.com/underlay-ccm/underlay/lb/converge"
)

// watched tells of every change.
type watched struct {
	lb.Backend
	changed func()
}

func (w watched) Apply(ctx context.Context, have lb.State, op lb.Op) error {
	err := w.Backend.Apply(ctx, have, op)
	w.changed()
	return err
}

// changes is what became of targets that changed their addresses in turns.
type changes struct {
	converge.Outcome
	took   time.Duration
	fewest int // targets that were healthy, after any change
}

// turns carries a Service out as the controller does, each time like a process that has just begun, until no verdict
// is waited for. What is asked for may change from look to look.
func (l *lab) turns(m converge.Memory, asked func(look int) (*corev1.Service, []*corev1.Node)) changes {
	l.t.Helper()
	b, start := l.sim.LoadBalancers()[0], time.Now()
	id, c := b.ID, changes{fewest: len(b.Targets)}
	backend := l.Backend
	l.Backend = watched{backend, func() { c.fewest = min(c.fewest, len(l.sim.HealthyTargets(id, 80))) }}
	defer func() { l.Backend = backend }()
	for look := range 200 {
		svc, nodes := asked(look)
		c.Outcome = l.repeated(m, converge.Endpoints{}, svc, nodes)
		if m = converge.Recall(remembering(svc, c.Memory)); !m.Open() && c.Transient == nil {
			c.took = time.Since(start)
			return c
		}
		time.Sleep(15 * time.Second)
	}
	l.t.Fatalf("not done after %s\n%s", time.Since(start), l.log())
	return c
}

// repeated carries a Service out once, as the controller does, which comes again.
func (l *lab) repeated(m converge.Memory, endpoints converge.Endpoints, svc *corev1.Service, nodes []*corev1.Node) converge.Outcome {
	p := converge.NewPlan(converge.Input{Service: svc, Nodes: nodes, Endpoints: endpoints, Defaults: l.Defaults, Memory: m, Now: time.Now(), Repeats: true})
	return l.Converge(quiet(l.t.Context()), p, converge.Hooks{})
}

// always asks for the same.
func always(svc *corev1.Service, nodes []*corev1.Node) func(int) (*corev1.Service, []*corev1.Node) {
	return func(int) (*corev1.Service, []*corev1.Node) { return svc, nodes }
}

// remembering is the Service as it is stored with a memory.
func remembering(svc *corev1.Service, m converge.Memory) *corev1.Service {
	svc = svc.DeepCopy()
	svc.Annotations[lb.AnnotationState] = m.Text(svc.UID)
	return svc
}

// remembered is what is still to do of a Service, for one who only looks.
func (l *lab) remembered(svc *corev1.Service, m converge.Memory, nodes ...*corev1.Node) converge.Plan {
	l.t.Helper()
	p := l.plan(svc, nodes...)
	p.Memory = m
	have, err := l.Backend.Observe(l.t.Context(), p.Spec.Owner)
	l.must(err)
	return p.Against(have, nil)
}

// public are the servers that are reached at their public addresses.
func public(b schema.LoadBalancer) (servers []int64) {
	for _, t := range b.Targets {
		if !t.UsePrivateIP {
			servers = append(servers, t.Server.ID)
		}
	}
	return servers
}

// inTheNetwork asks for targets at their private addresses, and for nothing else to be reachable.
func inTheNetwork(svc *corev1.Service, yes bool) {
	svc.Annotations[hetznerPrefix+"use-private-ip"] = fmt.Sprint(yes)
	svc.Annotations[hetznerPrefix+"disable-public-network"] = fmt.Sprint(yes)
}

// Targets change their addresses in turns, first one, so that half of those that were healthy stay so; the public
// interface goes when the last are healthy.
func TestTargetsAreReplacedInTurns(t *testing.T) {
	for name, c := range map[string]struct {
		nodes   int
		dead    bool
		fewest  int
		longest time.Duration
	}{
		"five":            {nodes: 5, fewest: 3, longest: 2 * time.Minute},
		"three":           {nodes: 3, fewest: 2, longest: 2 * time.Minute},
		"two":             {nodes: 2, fewest: 1, longest: 2 * time.Minute},
		"one":             {nodes: 1, fewest: 0, longest: time.Minute},
		"none is healthy": {nodes: 5, dead: true, fewest: 0, longest: 2 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			prober := func(hcloudsim.Probe) hcloudsim.Health { return "" } // time tells
			if c.dead {
				prober = func(hcloudsim.Probe) hcloudsim.Health { return hcloudsim.HealthUnhealthy }
			}
			inLabWith(t, hcloudsim.Options{HealthyAfter: 12 * time.Second, Prober: prober}, func(l *lab) {
				svc, nodes := l.service("000000000001"), l.nodes[:c.nodes]
				inTheNetwork(svc, false)
				l.converged(svc, nodes...)
				time.Sleep(time.Minute)
				inTheNetwork(svc, true)
				got := l.turns(converge.Memory{}, always(svc, nodes))
				b := l.sim.LoadBalancers()[0]
				if len(b.Targets) != c.nodes || len(public(b)) > 0 || b.PublicNet.Enabled || len(got.Notes) > 0 {
					t.Errorf("%s\nnotes %v\n%s", l.shape(b), got.Notes, l.log())
				}
				if got.fewest < c.fewest || got.took > c.longest {
					t.Errorf("%d targets were healthy, want %d; it took %s, want at most %s", got.fewest, c.fewest, got.took, c.longest)
				}
			})
		})
	}
}

// Targets that are not healthy at their other address are put back after the time that a verdict takes, which costs
// one of them, or those of a turn; what is reached as before stays so until somebody removes the memory.
func TestTargetsThatAreNotHealthyArePutBack(t *testing.T) {
	for name, c := range map[string]struct {
		nodes int
		from  bool // they are reached in the network before
		// Whom the load balancer finds how at the other address, of the servers in their order.
		health            func(server int) hcloudsim.Health
		moved             int // servers that change nevertheless
		fewest            int
		shortest, longest time.Duration
	}{
		"all of five": {nodes: 5, fewest: 4, shortest: 40 * time.Second, longest: 2 * time.Minute, health: func(int) hcloudsim.Health { return hcloudsim.HealthUnhealthy }},
		"one of one":  {nodes: 1, fewest: 0, shortest: 40 * time.Second, longest: 2 * time.Minute, health: func(int) hcloudsim.Health { return hcloudsim.HealthUnhealthy }},
		"out of the network": {nodes: 3, from: true, fewest: 2, shortest: 40 * time.Second, longest: 2 * time.Minute, health: func(int) hcloudsim.Health {
			return hcloudsim.HealthUnhealthy
		}},
		"no verdict": {nodes: 3, fewest: 2, shortest: 5 * time.Minute, longest: 10 * time.Minute, health: func(int) hcloudsim.Health { return hcloudsim.HealthUnknown }},
		"all but the first": {nodes: 5, moved: 1, fewest: 3, shortest: time.Minute, longest: 3 * time.Minute, health: func(server int) hcloudsim.Health {
			if server == 0 {
				return hcloudsim.HealthHealthy
			}
			return hcloudsim.HealthUnhealthy
		}},
		"all but the first two": {nodes: 5, moved: 2, fewest: 3, shortest: time.Minute, longest: 3 * time.Minute, health: func(server int) hcloudsim.Health {
			if server < 2 {
				return hcloudsim.HealthHealthy
			}
			return hcloudsim.HealthUnhealthy
		}},
		"only the last": {nodes: 2, moved: 1, fewest: 1, shortest: time.Minute, longest: 3 * time.Minute, health: func(server int) hcloudsim.Health {
			if server == 0 {
				return hcloudsim.HealthHealthy
			}
			return hcloudsim.HealthUnhealthy
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var first int64
			mended := false
			prober := func(p hcloudsim.Probe) hcloudsim.Health {
				if mended || lan.Contains(p.Address) == c.from {
					return hcloudsim.HealthHealthy
				}
				return c.health(int(p.Target.Server - first))
			}
			inLabWith(t, hcloudsim.Options{Prober: prober}, func(l *lab) {
				svc, nodes := l.service("000000000001"), l.nodes[:c.nodes]
				first = serverOf(t, l.nodes[0])
				inTheNetwork(svc, c.from)
				l.converged(svc, nodes...)
				before := len(public(l.sim.LoadBalancers()[0]))
				time.Sleep(time.Minute)
				inTheNetwork(svc, !c.from)
				got := l.turns(converge.Memory{}, always(svc, nodes))
				b := l.sim.LoadBalancers()[0]
				changed := len(public(b)) - before
				if len(b.Targets) != c.nodes || max(changed, -changed) != c.moved || !c.from && !b.PublicNet.Enabled {
					t.Errorf("%s\n%s", l.shape(b), l.log())
				}
				time.Sleep(time.Minute)
				if len(l.sim.HealthyTargets(b.ID, 80)) != c.nodes {
					t.Errorf("healthy are %v", l.sim.HealthyTargets(b.ID, 80))
				}
				if got.fewest < c.fewest || got.took < c.shortest || got.took > c.longest {
					t.Errorf("%d targets were healthy, want %d; it took %s, want %s to %s", got.fewest, c.fewest, got.took, c.shortest, c.longest)
				}
				if len(got.Notes) != 1 || got.Notes[0].Reason != lb.ReasonTargetsRolledBack || got.Notes[0].Grade != lb.Error {
					t.Errorf("notes %v", got.Notes)
				}
				if p := l.remembered(svc, got.Memory, nodes...); len(p.Ops) > 0 {
					t.Errorf("who only looks finds %v", p.Ops)
				}
				mended = true
				l.requests()
				time.Sleep(24 * time.Hour)
				later := l.turns(got.Memory, always(svc, nodes))
				if _, writes, _ := l.requests(); writes > 0 || len(later.Notes) != 1 {
					t.Errorf("%d writes a day later, notes %v", writes, later.Notes)
				}
				if again := l.turns(converge.Memory{}, always(svc, nodes)); len(again.Notes) > 0 || again.Memory.Text(svc.UID) != "" {
					t.Errorf("tried again: notes %v, remembered %s", again.Notes, again.Memory.Text(svc.UID))
				}
				b = l.sim.LoadBalancers()[0]
				if want := map[bool]int{true: c.nodes}[c.from]; len(b.Targets) != c.nodes || len(public(b)) != want || b.PublicNet.Enabled != c.from {
					t.Errorf("tried again: %s\n%s", l.shape(b), l.log())
				}
			})
		})
	}
}
