package controller

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/lb"
)

// watched reports every change, and may reject ops.
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

// lan contains the servers' private addresses.
var lan = netip.MustParsePrefix("10.0.0.0/8")

// public returns the targets with public addresses.
func public(b schema.LoadBalancer) []schema.LoadBalancerTarget {
	return slices.DeleteFunc(slices.Clone(b.Targets), func(t schema.LoadBalancerTarget) bool {
		return t.UsePrivateIP || t.IP != nil && lan.Contains(netip.MustParseAddr(t.IP.IP))
	})
}

// change is a move of healthy nodes from their public addresses to private ones, with the public
// interface disabled at the end.
type change struct {
	*lab
	svc    *corev1.Service
	nodes  []*corev1.Node
	fault  func(lb.Op) error
	fewest int // targets that were healthy, after any change
}

// changing runs a test of such a change. inLAN returns the health of a server at its private
// address.
func changing(
	t *testing.T, inLAN func() hcloudsim.Health, nodes func(l *lab) []*corev1.Node,
	test func(c *change),
) {
	t.Helper()
	prober := judging(func(p hcloudsim.Probe) hcloudsim.Health {
		if !lan.Contains(p.Address) {
			return hcloudsim.HealthHealthy
		}
		return inLAN()
	})
	inLabWith(t, hcloudsim.Options{Prober: prober}, func(l *lab) {
		c := &change{lab: l, nodes: nodes(l), fault: func(lb.Op) error { return nil }}
		c.configure(false)
		c.converged(c.svc, c.nodes...)
		time.Sleep(time.Minute)
		c.fewest = len(c.nodes)
		id := c.sim.LoadBalancers()[0].ID
		l.cloud = watched{
			l.cloud, func(op lb.Op) error { return c.fault(op) },
			func() { c.fewest = min(c.fewest, len(c.sim.HealthyTargets(id, 80))) },
		}
		l.restart()
		c.configure(true)
		test(c)
	})
}

func (c *change) configure(private bool) {
	c.svc = c.service("000000000001", "use-private-ip", fmt.Sprint(private), "disable-public-network", fmt.Sprint(private))
}

// looksFor reconciles every 15 s for a while, and then compares the number of targets at public
// addresses and the reasons of the notes.
func (c *change) looksFor(d time.Duration, atPublic int, reasons ...string) {
	c.t.Helper()
	var notes []lb.Note
	var err error
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(15 * time.Second) {
		notes, err = c.once(c.svc, c.nodes...)
	}
	var withReport []string
	for _, n := range notes {
		withReport = append(withReport, n.Reason)
	}
	b := c.balancer(c.svc)
	if err != nil || len(b.Targets) != len(c.nodes) || len(public(b)) != atPublic ||
		b.PublicNet.Enabled != (atPublic > 0) || !slices.Equal(withReport, reasons) {
		c.t.Errorf("%s\n%v, notes %v, want %v\n%s", c.shape(b), err, notes, reasons, c.log())
	}
	if c.fewest < len(c.nodes)-1 {
		c.t.Errorf("only %d targets were healthy", c.fewest)
	}
}

// Targets change their addresses one after the other, so that all but one stay healthy; then the
// public interface is disabled. If the first one doesn't become healthy, no other one changes,
// until it is healthy or a user reverts the annotation. The controller keeps no state that a new
// process lacks.
func TestTargetsChangeTheirAddressesInTheSimulator(t *testing.T) {
	for kind, nodes := range map[string]func(l *lab) []*corev1.Node{
		"servers": func(l *lab) []*corev1.Node { return l.nodes[:4] },
		"dedicated servers": func(*lab) (nodes []*corev1.Node) {
			for i := range 4 {
				nodes = append(nodes, bare(5+i, fmt.Sprint("10.1.0.", 5+i), fmt.Sprint("198.51.100.", 5+i)))
			}
			return nodes
		},
	} {
		t.Run(kind+" that are healthy", func(t *testing.T) {
			changing(t, healthyInLAN, nodes, func(c *change) { c.looksFor(8*time.Minute, 0) })
		})
		t.Run(kind+", a single one", func(t *testing.T) {
			one := func(l *lab) []*corev1.Node { return nodes(l)[:1] }
			changing(t, healthyInLAN, one, func(c *change) { c.looksFor(3*time.Minute, 0) })
		})
		for _, bad := range []hcloudsim.Health{hcloudsim.HealthUnhealthy, hcloudsim.HealthUnknown} {
			t.Run(fmt.Sprintf("%s that are %v", kind, bad), func(t *testing.T) {
				changing(t, func() hcloudsim.Health { return bad }, nodes, func(c *change) {
					c.looksFor(3*time.Minute, 3, lb.ReasonTargetsNotReplaced)
					c.restart()
					c.looksFor(time.Hour, 3, lb.ReasonTargetsNotReplaced)
					c.configure(false)
					c.looksFor(3*time.Minute, 4)
					if n := len(c.sim.HealthyTargets(c.balancer(c.svc).ID, 80)); n != 4 {
						t.Errorf("%d are healthy", n)
					}
				})
			})
		}
		t.Run(kind+" that heal", func(t *testing.T) {
			health := hcloudsim.HealthUnhealthy
			changing(t, func() hcloudsim.Health { return health }, nodes, func(c *change) {
				c.looksFor(3*time.Minute, 3, lb.ReasonTargetsNotReplaced)
				health = hcloudsim.HealthHealthy
				c.looksFor(8*time.Minute, 0)
			})
		})
	}
}

func healthyInLAN() hcloudsim.Health { return hcloudsim.HealthHealthy }

// A load balancer that is deleted in the middle of the change is recreated in its final form.
func TestALoadBalancerIsDeletedWhileTargetsChange(t *testing.T) {
	changing(t, healthyInLAN, func(l *lab) []*corev1.Node { return l.nodes[:4] }, func(c *change) {
		c.looksFor(time.Second, 3)
		c.must(c.cloud.Apply(quiet(c.t.Context()), lb.State{ID: c.balancer(c.svc).ID}, lb.Delete{}))
		c.converged(c.svc, c.nodes...)
		c.fewest = 4 // the deleted one has no healthy targets
		c.looksFor(time.Minute, 0)
		if n := len(c.sim.LoadBalancers()); n != 1 {
			t.Errorf("%d load balancers", n)
		}
	})
}

// If the cloud rejects the new address of a target that was removed, the old one is added again at
// once, and the change is not retried all the time.
func TestTargetsThatCannotBeReplacedArePutBack(t *testing.T) {
	changing(t, healthyInLAN, func(l *lab) []*corev1.Node { return l.nodes[:4] }, func(c *change) {
		tries := 0
		c.fault = func(op lb.Op) error {
			if add, ok := op.(lb.AddTarget); ok && add.Target.Private {
				tries++
				return &lb.RejectedError{Code: "server_not_attached_to_network", Message: "not attached", Target: true}
			}
			return nil
		}
		c.looksFor(30*time.Minute, 4, reasonRejected, reasonRejected, reasonRejected, reasonRejected)
		if tries != 4 {
			t.Errorf("%d tries", tries)
		}
	})
}
