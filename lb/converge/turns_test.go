package converge_test

import (
	"context"
	"slices"
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

// turns carries a Service out as the controller does, each time like a process that has just begun, until all its
// targets are reached in the network. It returns how long that took, and the fewest targets that were healthy.
func (l *lab) turns(svc *corev1.Service, nodes []*corev1.Node, spoil func(b schema.LoadBalancer)) (took time.Duration, fewest int) {
	l.t.Helper()
	id, start := l.sim.LoadBalancers()[0].ID, time.Now()
	fewest = len(nodes)
	backend := l.Backend
	l.Backend = watched{backend, func() {
		b, _ := l.sim.LoadBalancer(id)
		spoil(b)
		fewest = min(fewest, len(l.sim.HealthyTargets(id, 80)))
	}}
	defer func() { l.Backend = backend }()
	memory := converge.Memory{}
	for range 200 {
		p := converge.NewPlan(converge.Input{Service: svc, Nodes: nodes, Defaults: l.Defaults, Memory: memory, Now: time.Now(), Repeats: true})
		o := l.Converge(quiet(l.t.Context()), p, converge.Hooks{})
		if o.Transient != nil || len(o.Notes) > 0 {
			l.t.Fatalf("%v, notes %v", o.Transient, o.Notes)
		}
		if memory = o.Memory; !memory.Open() {
			return time.Since(start), fewest
		}
		time.Sleep(15 * time.Second)
	}
	l.t.Fatalf("not done after %s\n%s", time.Since(start), l.log())
	return 0, 0
}

// Targets change their addresses in turns, so that half of those that were healthy stay so; the public interface
// goes with the last. A health that nobody learns is waited for, and not for ever.
func TestTargetsAreReplacedInTurns(t *testing.T) {
	healthy := func(schema.LoadBalancer) {}
	for name, c := range map[string]struct {
		nodes  int
		spoil  func(l *lab) func(schema.LoadBalancer)
		fewest int
		// It takes at least and at most this long.
		shortest, longest time.Duration
	}{
		"five":  {nodes: 5, fewest: 3, longest: 2 * time.Minute},
		"three": {nodes: 3, fewest: 2, longest: 2 * time.Minute},
		"two":   {nodes: 2, fewest: 1, longest: 2 * time.Minute},
		"one":   {nodes: 1, fewest: 0, longest: 10 * time.Second},
		"no verdict": {nodes: 3, fewest: 0, shortest: 10 * time.Minute, longest: 20 * time.Minute, spoil: func(l *lab) func(schema.LoadBalancer) {
			return func(b schema.LoadBalancer) {
				for _, target := range b.Targets {
					if target.UsePrivateIP {
						l.must(l.sim.SetTargetHealth(b.ID, hcloudsim.TargetID{Server: target.Server.ID}, 0, hcloudsim.HealthUnknown))
					}
				}
			}
		}},
		"none is healthy": {nodes: 5, fewest: 0, longest: 30 * time.Second, spoil: func(l *lab) func(schema.LoadBalancer) {
			b := l.sim.LoadBalancers()[0]
			for _, target := range b.Targets {
				l.must(l.sim.SetTargetHealth(b.ID, hcloudsim.TargetID{Server: target.Server.ID}, 0, hcloudsim.HealthUnhealthy))
			}
			return healthy
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inLabWith(t, hcloudsim.Options{HealthyAfter: 12 * time.Second}, func(l *lab) {
				svc, nodes := l.service("000000000001"), l.nodes[:c.nodes]
				svc.Annotations[hetznerPrefix+"use-private-ip"] = "false"
				l.converged(svc, nodes...)
				time.Sleep(time.Minute)
				svc.Annotations[hetznerPrefix+"use-private-ip"] = "true"
				svc.Annotations[hetznerPrefix+"disable-public-network"] = "true"
				spoil := healthy
				if c.spoil != nil {
					spoil = c.spoil(l)
				}
				took, fewest := l.turns(svc, nodes, spoil)
				b := l.sim.LoadBalancers()[0]
				public := slices.ContainsFunc(b.Targets, func(t schema.LoadBalancerTarget) bool { return !t.UsePrivateIP })
				if len(b.Targets) != c.nodes || public || b.PublicNet.Enabled {
					t.Errorf("%s\n%s", l.shape(b), l.log())
				}
				if fewest < c.fewest || took < c.shortest || took > c.longest {
					t.Errorf("%d targets were healthy, want %d; it took %s, want %s to %s", fewest, c.fewest, took, c.shortest, c.longest)
				}
			})
		})
	}
}
