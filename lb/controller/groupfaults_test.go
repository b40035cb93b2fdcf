package controller

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/lb"
)

// groupPlan is what these Services ask for together.
func (l *lab) groupPlan(services ...*corev1.Service) Plan {
	var members []member
	for _, svc := range services {
		members = append(members, member{svc: svc, plan: l.plan(svc, l.nodes...)})
	}
	p := newGroupPlan(lb.GroupOwner(l.Cluster, "default.edge"), members, time.Now())
	p.refusals = l.refusals
	return p
}

// sharing is a Service with one port that shares.
func (l *lab) sharing(name string, port int32) *corev1.Service {
	svc := l.service(name)
	svc.Annotations[lb.AnnotationShared] = "edge"
	svc.Spec.Ports = []corev1.ServicePort{{Port: port, Protocol: "TCP", NodePort: 30000 + port}}
	return svc
}

// Whatever goes wrong with whichever request of a group's load balancer, trying again ends like
// nothing had happened: there is never a second one, and what belongs to others does not change.
func TestAnyFaultOfAGroup(t *testing.T) {
	runs := 0
	for n := 1; n <= 16; n++ {
		for i := range len((&lab{}).harms(nil)) {
			if !tried(i, n) {
				continue
			}
			runs++
			inLab(t, func(l *lab) {
				t := l.t
				bystander := l.service("000000000002")
				bystander.Annotations[hetznerPrefix+"name"] = "bystander"
				l.converged(bystander, l.nodes...)
				others, _ := l.sim.LoadBalancer(l.sim.LoadBalancers()[0].ID)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				h := l.harms(cancel)[i]
				l.wire.spoil(n, h)
				// Two are there; one comes and one changes; one goes.
				a, b, c := l.sharing("00000000000a", 80), l.sharing("00000000000b", 81), l.sharing("00000000000c", 82)
				changed := b.DeepCopy()
				changed.Spec.Ports[0].Port = 91
				for _, services := range [][]*corev1.Service{{a, b}, {a, changed, c}, {a, c}} {
					done := false
					for range 12 {
						o := l.converge(quiet(ctx), l.groupPlan(services...), hooks{})
						if done = o.Transient == nil && len(o.Notes) == 0; done {
							break
						}
						if ctx.Err() != nil {
							ctx = t.Context() // the next process
						}
						if o.Transient == nil {
							time.Sleep(2 * time.Hour)
						}
						time.Sleep(20 * time.Second)
					}
					if !done {
						t.Errorf("request %d: %s: not done\n%s", n, h.name, l.log())
						return
					}
				}
				l.wire.spoil(0, harm{})
				l.sim.ClearFaults()
				time.Sleep(time.Second)
				all := l.sim.LoadBalancers()
				have, err := l.backend.Observe(t.Context(), lb.GroupOwner(l.Cluster, "default.edge"))
				after, _ := l.sim.LoadBalancer(others.ID)
				var ports []string
				for _, listener := range have.Listeners {
					ports = append(ports, fmt.Sprint(listener.Port, " ", have.PortOwner(listener.Port)))
				}
				want := []string{"80 " + string(a.UID), "82 " + string(c.UID)}
				if err != nil || len(all) != 2 || !slices.Equal(ports, want) || len(have.Labels) != 6 || cmp.Diff(others, after) != "" {
					t.Errorf("request %d: %s: %v, %d load balancers, ports %v, labels %v\n%s", n, h.name, err, len(all), ports, have.Labels, l.log())
				}
			})
		}
	}
	t.Logf("%d runs with one fault each", runs)
}
