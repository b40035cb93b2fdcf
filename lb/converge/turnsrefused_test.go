package converge_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/hcloudsim"
	"github.com/underlay-ccm/underlay/lb"
	"github.com/underlay-ccm/underlay/lb/converge"
)

// What the cloud does not take back stays where it is, for an hour, and the rest of the Service is carried out.
func TestTargetsThatAreNotTakenBack(t *testing.T) {
	for name, c := range map[string]struct {
		after func(svc *corev1.Service) // the first look
		port  int                       // of the nodes, in the end
		told  []string
	}{
		"accepted": {
			after: func(svc *corev1.Service) { svc.Spec.Ports[0].NodePort = 30099 }, port: 30099,
			told: []string{lb.ReasonTargetsRolledBack, converge.ReasonRejected},
		},
		"refused": {
			after: func(svc *corev1.Service) { svc.Annotations[hetznerPrefix+"health-check-retries"] = "9" }, port: 30080,
			told: []string{lb.ReasonInvalid, lb.ReasonTargetsRolledBack, lb.ReasonHeld},
		},
	} {
		t.Run(name, func(t *testing.T) {
			moving(t, time.Minute, deadLAN, func(l *lab, svc *corev1.Service) {
				adds := 0
				l.Backend = breaking{l.Backend, func(op lb.Op) error {
					if add, ok := op.(lb.AddTarget); ok && !add.Target.Private {
						adds++
						return &lb.RejectedError{Code: "invalid_input", Message: "the server has no public address", Target: true}
					}
					return nil
				}}
				var memory converge.Memory
				told := converge.Outcome{}
				for range 8 { // every ten minutes
					told = l.repeated(memory, converge.Endpoints{}, svc, l.nodes[:4])
					memory = told.Memory
					time.Sleep(10 * time.Minute)
					c.after(svc)
				}
				l.expect(changes{Outcome: told}, 4, 3, c.told...)
				if b := l.sim.LoadBalancers()[0]; adds == 0 || adds > 2 || b.Services[0].DestinationPort != c.port {
					t.Errorf("tried %d times in 80 minutes\n%s", adds, l.shape(b))
				}
			})
		})
	}
}

// A Service that is refused meanwhile has its lost targets back, and so it stays when it is corrected; those that move
// well stay, and the others follow then.
func TestTurnsOfARefusedService(t *testing.T) {
	for name, c := range map[string]struct {
		health               func(server int, private bool) hcloudsim.Health
		held, public         int
		whileHeld, corrected []string
	}{
		"nobody answers there": {
			health: deadLAN, held: 4, public: 4,
			whileHeld: []string{lb.ReasonInvalid, lb.ReasonHeld, lb.ReasonTargetsRolledBack}, corrected: []string{lb.ReasonTargetsRolledBack},
		},
		"all answer": {health: fine, held: 3, whileHeld: []string{lb.ReasonInvalid, lb.ReasonHeld}},
	} {
		t.Run(name, func(t *testing.T) {
			moving(t, time.Minute, c.health, func(l *lab, svc *corev1.Service) {
				const retries = hetznerPrefix + "health-check-retries"
				held := l.turns(converge.Memory{}, func(look int) (*corev1.Service, []*corev1.Node) {
					if look > 0 {
						svc.Annotations[retries] = "9"
					}
					return svc, l.nodes[:4]
				})
				slices.SortFunc(held.Notes, func(a, b lb.Note) int { return strings.Compare(a.Reason, b.Reason) })
				slices.Sort(c.whileHeld)
				l.expect(held, 4, c.held, c.whileHeld...)
				delete(svc.Annotations, retries)
				l.expect(l.turns(held.Memory, always(svc, l.nodes[:4])), 4, c.public, c.corrected...)
			})
		})
	}
}

// Nodes that join while the Service is refused come where targets are healthy.
func TestNodesThatJoinARefusedServiceAfterTurns(t *testing.T) {
	first := func(server int, private bool) hcloudsim.Health { // all but the first are unhealthy in the network
		return map[bool]hcloudsim.Health{true: hcloudsim.HealthUnhealthy}[private && server > 0]
	}
	moving(t, time.Minute, first, func(l *lab, svc *corev1.Service) {
		got := l.turns(converge.Memory{}, always(svc, l.nodes[:4]))
		l.expect(got, 4, 3, lb.ReasonTargetsRolledBack)
		svc.Annotations[hetznerPrefix+"health-check-retries"] = "9"
		got = l.turns(got.Memory, always(svc, l.nodes))
		l.expect(got, 5, 4, lb.ReasonInvalid, lb.ReasonTargetsRolledBack, lb.ReasonHeld)
	})
}

// Checks that the cloud refuses to change hold nothing up for ever.
func TestTurnsAmongRefusedChecks(t *testing.T) {
	moving(t, time.Minute, fine, func(l *lab, svc *corev1.Service) {
		l.Backend = breaking{l.Backend, func(op lb.Op) error {
			if _, ok := op.(lb.UpdateListener); ok {
				return &lb.RejectedError{Code: "invalid_input", Message: "no such check"}
			}
			return nil
		}}
		svc.Annotations[hetznerPrefix+"health-check-interval"] = "20s"
		var memory converge.Memory
		for range 200 {
			memory = l.repeated(memory, converge.Endpoints{}, svc, l.nodes[:4]).Memory
			time.Sleep(15 * time.Second)
		}
		if b := l.sim.LoadBalancers()[0]; len(public(b)) > 0 || b.PublicNet.Enabled {
			t.Errorf("%s\nremembered %s", l.shape(b), memory.Text(svc.UID))
		}
	})
}

// What targets need before they can move may be refused for good: that is found out once, and no turn begins.
func TestNoTurnBeginsBehindARefusal(t *testing.T) {
	refused := &lb.RejectedError{Code: "invalid_input", Message: "no"}
	for name, c := range map[string]struct {
		private bool // before
		fault   func(lb.Op) error
	}{
		"to be attached": {fault: func(op lb.Op) error {
			if _, ok := op.(lb.AttachNetwork); ok {
				return refused
			}
			return nil
		}},
		"a public interface": {private: true, fault: func(op lb.Op) error {
			if _, ok := op.(lb.SetPublicInterface); ok {
				return refused
			}
			return nil
		}},
		"to be removed": {fault: func(op lb.Op) error {
			if _, ok := op.(lb.RemoveTarget); ok {
				return refused
			}
			return nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, func(l *lab) {
				svc, network := l.service("000000000001"), l.Network
				if name == "to be attached" {
					l.Network = 0
				}
				inTheNetwork(svc, c.private)
				l.converged(svc, l.nodes[:4]...)
				time.Sleep(time.Minute)
				inTheNetwork(svc, !c.private)
				l.Network = network
				tries := 0
				l.Backend = breaking{l.Backend, func(op lb.Op) error {
					err := c.fault(op)
					if err != nil {
						tries++
					}
					return err
				}}
				got := l.turns(converge.Memory{}, always(svc, l.nodes[:4]))
				l.expect(got, 4, map[bool]int{false: 4}[c.private], converge.ReasonRejected)
				if tries == 0 || tries > 2 || got.took > time.Minute {
					t.Errorf("tried %d times in %s", tries, got.took)
				}
			})
		})
	}
}

// A certificate that cannot be had leaves no target where it is lost.
func TestTurnsAmongRefusedCertificates(t *testing.T) {
	moving(t, time.Minute, deadLAN, func(l *lab, svc *corev1.Service) {
		l.Backend = breaking{l.Backend, func(op lb.Op) error {
			if _, ok := op.(lb.CreateCertificate); ok {
				return &lb.RejectedError{Code: "invalid_input", Message: "no"}
			}
			return nil
		}}
		got := l.turns(converge.Memory{}, func(look int) (*corev1.Service, []*corev1.Node) {
			if look > 0 {
				svc.Annotations[hetznerPrefix+"protocol"] = "https"
				svc.Annotations[hetznerPrefix+"certificate-type"] = "managed"
				svc.Annotations[hetznerPrefix+"http-managed-certificate-domains"] = "example.com"
			}
			return svc, l.nodes[:4]
		})
		l.expect(got, 4, 4, lb.ReasonTargetsRolledBack, converge.ReasonRejected)
	})
}
