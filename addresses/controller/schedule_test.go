package controller

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/addresses"
)

// With any events and failures, and with one leader or two that both consider themselves one, no
// invariant that the API server checks is violated. In the end every Service's status has the
// addresses of the ledger, and each address is at an eligible node.
func TestAnySchedule(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inWorld(t, func(w *world) {
				r := rand.New(rand.NewPCG(seed, 5))
				s := schedule{world: w, r: r}
				for _, name := range []string{"a", "b", "c", "d"} {
					w.node(name)
				}
				w.start()
				for range 60 {
					s.step()
					w.after(time.Duration(r.IntN(400)) * time.Millisecond)
				}
				s.calmDown()
				s.judge()
			})
		})
	}
}

type schedule struct {
	*world
	r      *rand.Rand
	made   int
	others []process
}

// step applies one event of users, nodes, the network or the lease.
func (s *schedule) step() {
	var names []string
	for _, o := range s.api.All("services") {
		names = append(names, o.GetName())
	}
	node := string(rune('a' + s.r.IntN(4)))
	switch n := s.r.IntN(12); {
	case n < 3 || len(names) == 0:
		s.made++
		s.service(fmt.Sprint("s", s.made), []func(*corev1.Service){dualStack, requiresBoth, localOnly, func(*corev1.Service) {}}[s.r.IntN(4)])
		s.endpoints(fmt.Sprint("s", s.made), node)
	case n == 3:
		s.api.remove("services", names[s.r.IntN(len(names))])
	case n == 4:
		s.editService(names[s.r.IntN(len(names))], func(svc *corev1.Service) {
			svc.Annotations["underlay.dev/addresses"] = fmt.Sprint("192.0.2.", 1+s.r.IntN(5))
		})
	case n == 5:
		s.editService(names[s.r.IntN(len(names))], func(svc *corev1.Service) { svc.Annotations = nil })
	case n == 6:
		s.editNode(node, func(n *corev1.Node) {
			n.Status.Conditions[0].Status = []corev1.ConditionStatus{
				corev1.ConditionTrue, corev1.ConditionUnknown,
			}[s.r.IntN(2)]
		})
	case n == 7:
		s.report(node, addresses.Report{
			Silent: []addresses.Endpoint{{Node: string(rune('a' + s.r.IntN(4))), Port: addresses.ProxyPort}},
		})
	case n == 8:
		faults := []fault{{refuse: true}, {lose: true}, {drop: true}, {delay: time.Second}}
		what := faults[s.r.IntN(len(faults))]
		kind := []string{"PUT configmaps", "GET configmaps", "GET services", "PATCH services/status"}[s.r.IntN(4)]
		s.line.inject(times(1+s.r.IntN(3), kind, what))
	case n == 9 && len(s.others) == 0:
		// Another process leads from now on; this one's watches are blocked, and it hasn't noticed.
		s.line.hold()
		s.others = append(s.others, s.process)
		s.start()
	case n == 10 && len(s.others) > 0:
		former := s.others[0]
		s.others = nil
		former.line.release()
		if s.r.IntN(2) == 0 {
			former.kill() // its lease is over
		} else {
			s.others = append(s.others, former)
			former.line.hold()
		}
	case n == 11:
		s.kill()
		s.start()
	}
}

// calmDown lets one leader run without faults, and makes all nodes ready.
func (s *schedule) calmDown() {
	for _, former := range s.others {
		former.line.release()
		former.kill()
	}
	s.line.inject(nil)
	for _, name := range []string{"a", "b", "c", "d"} {
		s.report(name, addresses.Report{})
		s.editNode(name, func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionTrue })
	}
	s.after(3 * time.Minute)
}

func (s *schedule) judge() {
	l := s.api.ledger()
	for _, o := range s.api.All("services") {
		svc := s.api.service(o.GetName())
		var want []string
		for _, f := range families(svc) {
			for _, a := range l.Of(string(svc.UID)) {
				if addresses.FamilyOf(a) == f {
					want = append(want, a.String())
				}
			}
		}
		s.has(svc.Name, strings.Join(want, ", "))
		if c := svc.Status.Conditions; len(c) != 1 || c[0].Status == "True" && len(want) < len(svc.Spec.IPFamilies) {
			s.t.Errorf("Service %s with %v of %v: %+v", svc.Name, want, svc.Spec.IPFamilies, c)
		}
	}
	for _, e := range l.Entries() {
		if len(e.Shares) == 0 {
			continue
		}
		known := slices.Contains([]string{"a", "b", "c", "d"}, e.Holder)
		if !known && !e.Local() {
			s.t.Errorf("%s is held by %q", e.Address, e.Holder)
		}
	}
}
