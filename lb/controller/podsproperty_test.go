package controller_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/underlay-ccm/underlay/lb"
)

// randomPods returns some pods on three nodes in random states, one of them ready.
func randomPods(r *rand.Rand) map[lb.Target]string {
	states := map[lb.Target]string{podAt(1+r.IntN(3), 1): "ready"}
	for range r.IntN(10) {
		states[podAt(1+r.IntN(3), 2+r.IntN(5))] = []string{"ready", "ready", "waiting", "draining", "ending"}[r.IntN(5)]
	}
	return states
}

// endOf returns the final state of the cloud and the nodes.
func endOf(t *testing.T, seed uint64, before func(w *world, p *pods)) (end string) {
	t.Helper()
	inWorldWith(t, newCloud(), []runtime.Object{podNode(1), podNode(2), podNode(3)},
		func(d *lb.Defaults) { d.OwnPools = true }, func(w *world) {
			p := newPods(w)
			w.cloud.watch = func(op lb.Op) {
				add, ok := op.(lb.AddTarget)
				if ok && add.Target.Pod() && !strings.Contains(w.openings(), add.Target.Address.String()) {
					t.Errorf("seed %d: %s, and its node does not let it through:\n%s", seed, op, w.openings())
				}
			}
			svc := podService()
			svc.Spec.Ports[0].NodePort = 30080
			if before != nil {
				p.publish()
				w.create(svc)
				before(w, p)
			}
			p.ipv4 = nil
			p.are(randomPods(rand.New(rand.NewPCG(seed, 1))))
			if before == nil {
				w.create(svc)
			}
			w.cloud.setFault(nil)
			w.later()
			w.later()
			w.cloud.counts()
			w.written()
			w.later()
			if _, writes := w.cloud.counts(); len(writes) > 0 || w.written() > 0 {
				t.Errorf("seed %d: no rest: %v", seed, writes)
			}
			end = fmt.Sprintf("%s%s\n%s", w.cloud, w.openings(), accepted(w.service("web")))
		})
	return end
}

// With endpoints changing in any order, nodes replacing pods as targets and back, failing requests
// and restarts, the result is that of a Service that was just created.
func TestAnyOrderOfEndpointsEndsTheSame(t *testing.T) {
	for seed := range uint64(12 / slowdown) {
		fresh := endOf(t, seed, nil)
		after := endOf(t, seed, func(w *world, p *pods) {
			r := rand.New(rand.NewPCG(seed, 0))
			for range 12 {
				switch r.IntN(8) {
				case 0:
					w.restart()
				case 1:
					w.edit("web", func(s *corev1.Service) {
						s.Annotations[lb.AnnotationTargets] = []string{"nodes", "pods", "pods"}[r.IntN(3)]
					})
				case 2:
					p.ipv4 = map[string]string{"node-1": "ready"}
				case 3:
					failing := r.IntN(3)
					w.cloud.setFault(func(lb.Op) error {
						if failing--; failing >= 0 {
							return errors.New("the network is down")
						}
						return nil
					})
				default:
					p.ipv4 = nil
					if p.states = nil; r.IntN(4) > 0 {
						p.states = randomPods(r)
					}
				}
				p.publish()
				time.Sleep(time.Duration(r.IntN(5000)) * time.Millisecond)
			}
			w.edit("web", func(s *corev1.Service) { s.Annotations[lb.AnnotationTargets] = "pods" })
		})
		if after != fresh {
			t.Errorf("seed %d: after changes:\n%s\nfresh:\n%s", seed, after, fresh)
		}
	}
}
