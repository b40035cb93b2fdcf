package converge_test

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/hcloudsim"
	"github.com/underlay-ccm/underlay/lb"
	"github.com/underlay-ccm/underlay/lb/converge"
)

// lan is where servers have their private addresses.
var lan = netip.MustParsePrefix("10.0.0.0/8")

// moving runs a test of five nodes in a network, of which four, reached at their public addresses, are the targets of a
// load balancer, since a minute if they are to be healthy. health is of a server, in their order, at an address.
func moving(t *testing.T, since time.Duration, health func(server int, private bool) hcloudsim.Health, test func(l *lab, svc *corev1.Service)) {
	t.Helper()
	var first int64
	prober := func(p hcloudsim.Probe) hcloudsim.Health {
		return health(int(p.Target.Server-first), lan.Contains(p.Address))
	}
	inLabWith(t, hcloudsim.Options{HealthyAfter: 20 * time.Second, Prober: prober}, func(l *lab) {
		svc := l.service("000000000001")
		first = serverOf(t, l.nodes[0])
		inTheNetwork(svc, false)
		l.converged(svc, l.nodes[:4]...)
		time.Sleep(since)
		inTheNetwork(svc, true)
		test(l, svc)
	})
}

// deadLAN is what the nodes of a cluster are that nobody reaches in the network.
func deadLAN(_ int, private bool) hcloudsim.Health {
	if private {
		return hcloudsim.HealthUnhealthy
	}
	return ""
}

func fine(int, bool) hcloudsim.Health { return "" }

// expect compares how many targets there are, and are reached at their public addresses, and what the Service is told.
func (l *lab) expect(c changes, targets, atPublic int, reasons ...string) {
	l.t.Helper()
	var told []string
	for _, n := range c.Notes {
		told = append(told, n.Reason)
	}
	b := l.sim.LoadBalancers()[0]
	if len(b.Targets) != targets || len(public(b)) != atPublic || !slices.Equal(told, reasons) {
		l.t.Errorf("%s\nnotes %v, want %v; remembered %s\n%s", l.shape(b), c.Notes, reasons, c.Memory.Text("uid"), l.log())
	}
}

// Whoever takes the wish back while a verdict is waited for has it, and nothing is remembered.
func TestTurnsTakenBack(t *testing.T) {
	moving(t, time.Minute, deadLAN, func(l *lab, svc *corev1.Service) {
		got := l.turns(converge.Memory{}, func(look int) (*corev1.Service, []*corev1.Node) {
			inTheNetwork(svc, look == 0)
			return svc, l.nodes[:4]
		})
		l.expect(got, 4, 4)
		if text := got.Memory.Text(svc.UID); got.fewest < 3 || text != "" {
			t.Errorf("%d targets were healthy, remembered %s", got.fewest, text)
		}
	})
}

// Nodes that leave, join, or are unhealthy anyway say nothing of addresses.
func TestTurnsAmongOtherNodes(t *testing.T) {
	for name, c := range map[string]struct {
		nodes  int // after the first look
		health func(server int, private bool) hcloudsim.Health
		public int
		told   []string
		writes int // if it is known
	}{
		"one leaves": {nodes: 3, health: fine},
		"one joins that is not healthy": {nodes: 5, health: func(server int, _ bool) hcloudsim.Health {
			return map[bool]hcloudsim.Health{true: hcloudsim.HealthUnhealthy}[server == 4]
		}},
		"one joins where nobody answers": {nodes: 5, health: deadLAN, public: 5, told: []string{lb.ReasonTargetsRolledBack}},
		"some are unhealthy anyway": {nodes: 4, health: func(server int, _ bool) hcloudsim.Health {
			return map[bool]hcloudsim.Health{true: hcloudsim.HealthUnhealthy}[server < 3]
		}},
		"some are unhealthy anyway, the others where they are wanted": {nodes: 4, public: 4, writes: 4, told: []string{lb.ReasonTargetsRolledBack}, health: func(server int, private bool) hcloudsim.Health {
			return map[bool]hcloudsim.Health{true: hcloudsim.HealthUnhealthy}[private || server < 2]
		}},
	} {
		t.Run(name, func(t *testing.T) {
			moving(t, time.Minute, c.health, func(l *lab, svc *corev1.Service) {
				l.requests()
				got := l.turns(converge.Memory{}, func(look int) (*corev1.Service, []*corev1.Node) {
					if look == 0 {
						return svc, l.nodes[:4]
					}
					return svc, l.nodes[:c.nodes]
				})
				l.expect(got, c.nodes, c.public, c.told...)
				if _, writes, _ := l.requests(); c.writes > 0 && writes != c.writes {
					t.Errorf("%d writes, want %d", writes, c.writes)
				}
			})
		})
	}
}

// Targets that nobody has judged yet may be healthy, so they are not replaced all at once.
func TestTurnsWaitForTheFirstVerdict(t *testing.T) {
	moving(t, 0, deadLAN, func(l *lab, svc *corev1.Service) {
		got := l.turns(converge.Memory{}, always(svc, l.nodes[:4]))
		l.expect(got, 4, 4, lb.ReasonTargetsRolledBack)
	})
}

// What is down everywhere for a while says nothing of addresses.
func TestTurnsAmongOutages(t *testing.T) {
	var began time.Time
	health := func(int, bool) hcloudsim.Health {
		since := time.Since(began)
		return map[bool]hcloudsim.Health{true: hcloudsim.HealthUnhealthy, false: hcloudsim.HealthHealthy}[since > time.Second && since < 3*time.Minute]
	}
	moving(t, time.Minute, health, func(l *lab, svc *corev1.Service) {
		began = time.Now()
		l.expect(l.turns(converge.Memory{}, always(svc, l.nodes[:4])), 4, 0)
	})
}

// With policy Local, a target whose pods have gone elsewhere does not blame its address.
func TestTurnsAmongMovingPods(t *testing.T) {
	at := 0 // the server that has the pod
	health := func(server int, _ bool) hcloudsim.Health {
		return map[bool]hcloudsim.Health{true: hcloudsim.HealthUnhealthy}[server != at]
	}
	moving(t, time.Minute, health, func(l *lab, svc *corev1.Service) {
		svc.Spec.ExternalTrafficPolicy, svc.Spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyLocal, 32000
		l.converged(svc, l.nodes[:4]...) // all at once; back again
		inTheNetwork(svc, false)
		l.converged(svc, l.nodes[:4]...)
		time.Sleep(time.Minute)
		inTheNetwork(svc, true)
		var memory converge.Memory
		for look := range 60 {
			at = min(look, 3) // it never stays until a verdict
			endpoints := converge.Endpoints{Known: true, Nodes: map[string]bool{l.nodes[at].Name: true}}
			o := l.repeated(memory, endpoints, svc, l.nodes[:4])
			if o.Transient != nil || len(o.Notes) > 0 {
				t.Fatalf("%v, notes %v", o.Transient, o.Notes)
			}
			if memory = o.Memory; !memory.Open() {
				break
			}
			time.Sleep(15 * time.Second)
		}
		l.expect(changes{Outcome: converge.Outcome{Memory: memory}}, 4, 0)
		if memory.Open() {
			t.Errorf("still remembered: %s", memory.Text(svc.UID))
		}
	})
}

// breaking lets some ops fail.
type breaking struct {
	lb.Backend
	fault func(lb.Op) error
}

func (b breaking) Apply(ctx context.Context, have lb.State, op lb.Op) error {
	if err := b.fault(op); err != nil {
		return err
	}
	return b.Backend.Apply(ctx, have, op)
}

// What fails on the way has not moved, or is nowhere, so nothing is proved by it.
func TestTurnsThatFailProveNothing(t *testing.T) {
	for name, c := range map[string]struct {
		fails int // additions
		from  int // counted so
		// The servers, in their order, that answer in the network.
		answering []int
		public    int
		fewest    int
	}{
		"the first, which comes back":          {fails: 1, public: 4, fewest: 3},
		"the first, which does not":            {fails: 2, public: 4, fewest: 3},
		"the second, when the first is proved": {from: 1, fails: 1, answering: []int{0}, public: 3, fewest: 2},
		"the only one that doesn't answer":     {from: 1, fails: 1, answering: []int{0, 2, 3}, public: 2, fewest: 2},
	} {
		t.Run(name, func(t *testing.T) {
			health := func(server int, private bool) hcloudsim.Health {
				return map[bool]hcloudsim.Health{true: hcloudsim.HealthUnhealthy}[private && !slices.Contains(c.answering, server)]
			}
			moving(t, time.Minute, health, func(l *lab, svc *corev1.Service) {
				adds := 0
				l.Backend = breaking{l.Backend, func(op lb.Op) error {
					if _, ok := op.(lb.AddTarget); !ok {
						return nil
					}
					if adds++; adds > c.from && adds <= c.from+c.fails {
						return errCut
					}
					return nil
				}}
				got := l.turns(converge.Memory{}, always(svc, l.nodes[:4]))
				l.expect(got, 4, c.public, lb.ReasonTargetsRolledBack)
				if adds <= c.from+c.fails || got.fewest < c.fewest {
					t.Errorf("%d additions; %d targets were healthy", adds, got.fewest)
				}
			})
		})
	}
}

// A turn that takes the cloud long is judged as long after it as others are.
func TestTurnsTakeTheirTime(t *testing.T) {
	added := map[int]time.Time{} // a server is unhealthy for a while when it is new
	health := func(server int, private bool) hcloudsim.Health {
		if private && time.Since(added[server]) < 20*time.Second {
			return hcloudsim.HealthUnhealthy
		}
		return hcloudsim.HealthHealthy
	}
	moving(t, time.Minute, health, func(l *lab, svc *corev1.Service) {
		first := serverOf(t, l.nodes[0])
		svc.Annotations[hetznerPrefix+"health-check-interval"], svc.Annotations[hetznerPrefix+"health-check-timeout"] = "3s", "2s"
		l.Backend = breaking{l.Backend, func(op lb.Op) error {
			if add, ok := op.(lb.AddTarget); ok && add.Target.Private {
				time.Sleep(time.Minute)
				added[int(add.Target.Server-first)] = time.Now()
			}
			return nil
		}}
		l.expect(l.turns(converge.Memory{}, always(svc, l.nodes[:4])), 4, 0)
	})
}

// A change of checks and addresses at once is one after the other, so that neither blames the other.
func TestChecksBeforeTurns(t *testing.T) {
	for name, c := range map[string]struct {
		nodes      int
		check, lan bool // are good
		public     int
		told       []string
	}{
		"both are good":              {nodes: 4, check: true, lan: true},
		"the check is bad":           {nodes: 4, lan: true, told: []string{lb.ReasonCheckRolledBack}},
		"nobody answers there":       {nodes: 4, check: true, public: 4, told: []string{lb.ReasonTargetsRolledBack}},
		"the only one doesn't there": {nodes: 1, check: true, public: 1, told: []string{lb.ReasonTargetsRolledBack}},
		"nobody answers anything":    {nodes: 4, public: 4, told: []string{lb.ReasonTargetsRolledBack, lb.ReasonCheckRolledBack}},
	} {
		t.Run(name, func(t *testing.T) {
			prober := func(p hcloudsim.Probe) hcloudsim.Health {
				if !c.check && p.Service.HealthCheck.Port == 4711 || !c.lan && lan.Contains(p.Address) {
					return hcloudsim.HealthUnhealthy
				}
				return hcloudsim.HealthHealthy
			}
			inLabWith(t, hcloudsim.Options{Prober: prober}, func(l *lab) {
				svc := l.service("000000000001")
				inTheNetwork(svc, false)
				l.converged(svc, l.nodes[:c.nodes]...)
				time.Sleep(time.Minute)
				inTheNetwork(svc, true)
				svc.Annotations[hetznerPrefix+"health-check-port"] = "4711"
				svc.Annotations[hetznerPrefix+"health-check-protocol"] = "tcp"
				l.expect(l.turns(converge.Memory{}, always(svc, l.nodes[:c.nodes])), c.nodes, c.public, c.told...)
			})
		})
	}
}

// A load balancer that somebody deleted is made again as its targets were healthy, whatever was known of others.
func TestTurnsOfALostLoadBalancer(t *testing.T) {
	moving(t, time.Minute, deadLAN, func(l *lab, svc *corev1.Service) {
		begun := l.repeated(converge.Memory{}, converge.Endpoints{}, svc, l.nodes[:4])
		l.must(l.Backend.Apply(quiet(l.t.Context()), begun.State, lb.Delete{}))
		made := l.repeated(begun.Memory, converge.Endpoints{}, svc, l.nodes[:4])
		l.expect(changes{Outcome: made}, 4, 4)
		got := l.turns(made.Memory, always(svc, l.nodes[:4]))
		l.expect(got, 4, 4, lb.ReasonTargetsRolledBack)
		l.must(l.Backend.Apply(quiet(l.t.Context()), got.State, lb.Delete{}))
		if len(l.sim.LoadBalancers()) > 0 {
			t.Fatal("it is still there")
		}
		again := l.repeated(got.Memory, converge.Endpoints{}, svc, l.nodes[:4])
		l.expect(changes{Outcome: again}, 4, 4, lb.ReasonTargetsRolledBack)
	})
}

// A load balancer that is deleted while only its checks change is made again as it was.
func TestNoTurnBeginsWithChecks(t *testing.T) {
	inLab(t, func(l *lab) {
		svc := l.service("000000000001")
		inTheNetwork(svc, true)
		l.converged(svc, l.nodes...)
		time.Sleep(time.Minute)
		svc.Annotations[hetznerPrefix+"health-check-interval"] = "20s"
		begun := l.repeated(converge.Memory{}, converge.Endpoints{}, svc, l.nodes)
		if !begun.Memory.Open() {
			t.Fatal("the checks are not on trial")
		}
		l.must(l.Backend.Apply(quiet(l.t.Context()), begun.State, lb.Delete{}))
		made := l.repeated(begun.Memory, converge.Endpoints{}, svc, l.nodes)
		l.expect(changes{Outcome: made}, 5, 0)
		if b := l.sim.LoadBalancers()[0]; b.PublicNet.Enabled {
			t.Errorf("it is public\n%s", l.shape(b))
		}
	})
}
