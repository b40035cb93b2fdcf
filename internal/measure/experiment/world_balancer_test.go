package experiment

import (
	"context"
	"slices"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim"
)

// targetOf is a target of a load balancer.
type targetOf struct {
	balancer int64
	target   hcloudsim.TargetID
}

// since is since when each target is one.
func since(before map[targetOf]time.Time, plane hcloudsim.DataPlane) map[targetOf]time.Time {
	now := map[targetOf]time.Time{}
	for _, lb := range plane.LoadBalancers {
		for _, t := range lb.Targets {
			id := targetOf{lb.ID, t.TargetID}
			if at, known := before[id]; known {
				now[id] = at
			} else {
				now[id] = time.Now()
			}
		}
	}
	return now
}

// learning is the simulator for load balancers that take a while to know of a target.
type learning struct {
	*hcloudsim.Simulator
	world *world
}

// missing is how long it takes until a load balancer knows of a target.
func (l learning) missing(balancer int64, target hcloudsim.TargetID) time.Duration {
	l.world.mu.Lock()
	defer l.world.mu.Unlock()
	at, known := l.world.targets[targetOf{balancer, target}]
	if !known {
		return 0
	}
	return time.Until(at.Add(l.world.learns))
}

func (l learning) HealthyTargets(loadBalancer int64, listenPort int) []hcloudsim.PlaneTarget {
	all := l.Simulator.HealthyTargets(loadBalancer, listenPort)
	return slices.DeleteFunc(all, func(t hcloudsim.PlaneTarget) bool { return l.missing(loadBalancer, t.TargetID) > 0 })
}

func (l learning) RunHealthChecks(ctx context.Context, ask hcloudsim.Prober) {
	l.Simulator.RunHealthChecks(ctx, func(p hcloudsim.Probe) hcloudsim.Finding {
		if err := wait(ctx, l.missing(p.LoadBalancer, p.Target)); err != nil {
			return hcloudsim.Finding{}
		}
		return ask(p)
	})
}
