package controller

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/lb"
)

// watched tells of every change, and may refuse some.
type watched struct {
	lb.Backend
	fault   func(lb.Op) error
	changed func()
}

func (w watched) Apply(ctx context.Context, have lb.State, op lb.Op) error {
	if err := w.fault(op); err != nil {
		return err
	}
	err := w.Backend.Apply(ctx, have, op)
	w.changed()
	return err
}

// lan is where servers have their private addresses.
var lan = netip.MustParsePrefix("10.0.0.0/8")

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

// repeated carries a Service out once, as the controller does, which comes again.
func (l *lab) repeated(m memory, svc *corev1.Service, nodes []*corev1.Node) outcome {
	p := newPlan(svc, nodes, nil, l.Defaults, time.Now())
	p.memory, p.repeats, p.refusals, p.unhealthy = m, true, l.refusals, l.unhealthy
	return l.converge(quiet(l.t.Context()), p, hooks{})
}

// change is four nodes, reached at their public addresses and healthy, that are to be reached in
// the network.
type change struct {
	*lab
	svc    *corev1.Service
	nodes  []*corev1.Node
	memory memory
	fault  func(lb.Op) error
	fewest int // targets that were healthy, after any change
}

// changing runs a test of such a change. inLAN is the health in the network of a server, in their
// order.
func changing(t *testing.T, n int, inLAN func(server int) hcloudsim.Health, test func(c *change)) {
	t.Helper()
	var first int64
	prober := judging(func(p hcloudsim.Probe) hcloudsim.Health {
		if p.Service.HealthCheck.Port == 4711 {
			return hcloudsim.HealthUnhealthy
		}
		if !lan.Contains(p.Address) {
			return hcloudsim.HealthHealthy
		}
		return inLAN(int(p.Target.Server - first))
	})
	inLabWith(t, hcloudsim.Options{Prober: prober}, func(l *lab) {
		c := &change{lab: l, svc: l.service("000000000001"), nodes: l.nodes[:n], fault: func(lb.Op) error { return nil }}
		first = serverOf(t, l.nodes[0])
		inTheNetwork(c.svc, false)
		c.converged(c.svc, c.nodes...)
		time.Sleep(time.Minute)
		c.fewest = n
		id := c.sim.LoadBalancers()[0].ID
		l.backend = watched{
			l.backend, func(op lb.Op) error { return c.fault(op) },
			func() { c.fewest = min(c.fewest, len(c.sim.HealthyTargets(id, 80))) },
		}
		inTheNetwork(c.svc, true)
		test(c)
	})
}

// looks carries the Service out every 15 s for a while, and returns what came of the last time.
func (c *change) looks(d time.Duration) (o outcome) {
	c.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(15 * time.Second) {
		o = c.repeated(c.memory, c.svc, c.nodes)
		c.memory = recall(withMemory(c.svc, o.memory))
	}
	return o
}

// withMemory is the Service as it is stored with a memory.
func withMemory(svc *corev1.Service, m memory) *corev1.Service {
	svc = svc.DeepCopy()
	svc.Annotations[lb.AnnotationState] = m.text(svc.UID)
	return svc
}

// expect compares how many targets are reached at their public addresses, and what the Service is
// told.
func (c *change) expect(o outcome, atPublic int, reasons ...string) {
	c.t.Helper()
	var told []string
	for _, n := range o.Notes {
		told = append(told, n.Reason)
	}
	b := c.sim.LoadBalancers()[0]
	if len(b.Targets) != len(c.nodes) || len(public(b)) != atPublic || !slices.Equal(told, reasons) {
		c.t.Errorf("%s\nnotes %v, want %v\n%s", c.shape(b), o.Notes, reasons, c.log())
	}
}

func healthyInLAN(int) hcloudsim.Health   { return hcloudsim.HealthHealthy }
func unhealthyInLAN(int) hcloudsim.Health { return hcloudsim.HealthUnhealthy }

// Targets change their addresses one after the other, so that all but one stay healthy; then the
// public interface goes. Where the first is not healthy no other changes, until a person changes
// the annotation back, and nothing is remembered but what any process sees.
func TestTargetsChangeTheirAddressesInTheSimulator(t *testing.T) {
	t.Run("healthy", func(t *testing.T) {
		changing(t, 4, healthyInLAN, func(c *change) {
			o := c.looks(8 * time.Minute)
			c.expect(o, 0)
			if c.fewest < 3 || c.sim.LoadBalancers()[0].PublicNet.Enabled || o.waits || o.memory.text(c.svc.UID) != "" {
				t.Errorf("only %d targets were healthy; %s", c.fewest, c.shape(c.sim.LoadBalancers()[0]))
			}
		})
	})
	t.Run("a single one", func(t *testing.T) {
		changing(t, 1, healthyInLAN, func(c *change) { c.expect(c.looks(3*time.Minute), 0) })
	})
	for name, health := range map[string]func(int) hcloudsim.Health{
		"unhealthy": unhealthyInLAN, "never judged": func(int) hcloudsim.Health { return hcloudsim.HealthUnknown },
	} {
		t.Run(name, func(t *testing.T) {
			changing(t, 4, health, func(c *change) {
				o := c.looks(3 * time.Minute)
				c.expect(o, 3, lb.ReasonTargetsNotReplaced)
				c.unhealthy = newSince[lb.Target]() // another process
				o = c.looks(time.Hour)
				c.expect(o, 3, lb.ReasonTargetsNotReplaced)
				if c.fewest < 3 || o.waits || o.memory.text(c.svc.UID) != "" {
					t.Errorf("only %d targets were healthy, waits %t", c.fewest, o.waits)
				}
				inTheNetwork(c.svc, false)
				c.expect(c.looks(3*time.Minute), 4)
				if n := len(c.sim.HealthyTargets(c.sim.LoadBalancers()[0].ID, 80)); n != 4 {
					t.Errorf("%d are healthy", n)
				}
			})
		})
	}
	t.Run("it heals", func(t *testing.T) {
		healed := false
		health := func(int) hcloudsim.Health {
			return map[bool]hcloudsim.Health{true: hcloudsim.HealthHealthy, false: hcloudsim.HealthUnhealthy}[healed]
		}
		changing(t, 4, health, func(c *change) {
			c.expect(c.looks(3*time.Minute), 3, lb.ReasonTargetsNotReplaced)
			healed = true
			c.expect(c.looks(8*time.Minute), 0)
		})
	})
}

// A load balancer that somebody deletes in the middle is made again as is wanted.
func TestALoadBalancerIsDeletedWhileTargetsChange(t *testing.T) {
	changing(t, 4, healthyInLAN, func(c *change) {
		begun := c.repeated(c.memory, c.svc, c.nodes)
		c.expect(begun, 3)
		c.must(c.backend.Apply(quiet(c.t.Context()), begun.State, lb.Delete{}))
		c.expect(c.looks(time.Minute), 0)
		if b := c.sim.LoadBalancers(); len(b) != 1 || b[0].PublicNet.Enabled {
			t.Errorf("%d load balancers", len(b))
		}
	})
}

// What the cloud refuses in the place of a target that it took away is put back at once, and not
// tried again all the time.
func TestTargetsThatCannotBeReplacedArePutBack(t *testing.T) {
	changing(t, 4, healthyInLAN, func(c *change) {
		tries := 0
		c.fault = func(op lb.Op) error {
			if add, ok := op.(lb.AddTarget); ok && add.Target.Private {
				tries++
				return &lb.RejectedError{Code: "server_not_attached_to_network", Message: "not attached", Target: true}
			}
			return nil
		}
		o := c.looks(30 * time.Minute)
		c.expect(o, 4, reasonRejected, reasonRejected, reasonRejected, reasonRejected)
		if c.fewest < 3 || tries != 4 || o.Transient != nil || !c.sim.LoadBalancers()[0].PublicNet.Enabled {
			t.Errorf("only %d targets were healthy, %d tries, %v", c.fewest, tries, o.Transient)
		}
	})
}

// A change of checks and addresses at once is one after the other, so that neither is blamed for
// the other.
func TestChecksBeforeAddresses(t *testing.T) {
	changing(t, 4, healthyInLAN, func(c *change) {
		c.svc.Annotations[hetznerPrefix+"health-check-port"] = "4711"
		c.svc.Annotations[hetznerPrefix+"health-check-protocol"] = "tcp"
		c.expect(c.looks(15*time.Second), 4)
		c.expect(c.looks(10*time.Minute), 0, lb.ReasonCheckRolledBack)
	})
}
