package controller_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/lb"
	"github.com/underlay-ccm/underlay/lb/lbtest"
)

// noPrivateTargets is a cloud that takes no target at its private address; least is the smallest number of
// targets that the load balancer ever had since the last call.
func noPrivateTargets(w *world, n int) (least func() int) {
	now, low := n, n
	w.cloud.SetFault(func(op lb.Op) error {
		switch op := op.(type) {
		case lb.RemoveTarget:
			now--
		case lb.AddTarget:
			if op.Target.Private {
				return &lb.RejectedError{Code: "resolve_cloud_private_targets_error", Message: "the server is not in the network", Target: true}
			}
			now++
		}
		low = min(low, now)
		return nil
	})
	return func() int {
		was := low
		low = now
		return was
	}
}

func toPrivate(svc *corev1.Service) { svc.Annotations[lb.HetznerPrefix+"use-private-ip"] = "true" }

// A cloud that refuses private targets costs one target for a moment, whatever happens meanwhile, and the
// load balancer ends with all of them, a node that joined too.
func TestRefusedPrivateTargetsLoseNoTraffic(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			n := 1 + r.IntN(6)
			inWorld(t, lbtest.NewCloud(), nodes(n), func(w *world) {
				w.create(service("web"))
				least := noPrivateTargets(w, n)
				w.edit("web", toPrivate)
				for range 6 {
					[]func(){
						w.restart, w.later, func() { time.Sleep(2 * time.Hour) },
						func() { w.edit("web", func(svc *corev1.Service) { svc.Annotations["a"] = fmt.Sprint(r.Int()) }) },
						func() { w.edit("web", func(svc *corev1.Service) { delete(svc.Annotations, lb.AnnotationState) }) },
					}[r.IntN(5)]()
				}
				if low := least(); low < n-1 {
					t.Errorf("there were only %d targets of %d", low, n)
				}
				if _, err := w.api.CoreV1().Nodes().Create(context.Background(), node("late", 99), metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				w.later()
				targets := w.cloud.All()[0].Targets
				if len(targets) != n+1 || slices.ContainsFunc(targets, func(t lb.Target) bool { return t.Private }) {
					t.Errorf("targets %v of %d nodes", targets, n+1)
				}
				if got := w.service("web"); accepted(got) != "False Rejected" || !strings.Contains(got.Status.Conditions[0].Message, "the server is not in the network") {
					t.Errorf("accepted %s: %s", accepted(got), got.Status.Conditions[0].Message)
				}
			})
		})
	}
}

// The refusal is told once, the rest of the Service is carried out, and the cloud is asked again after an hour.
func TestRefusedPrivateTargetsAreTriedAgain(t *testing.T) {
	inWorld(t, lbtest.NewCloud(), nodes(2), func(w *world) {
		w.create(service("web"))
		noPrivateTargets(w, 2)
		w.said()
		w.cloud.Counts()
		w.edit("web", func(svc *corev1.Service) {
			toPrivate(svc)
			svc.Annotations[lb.HetznerPrefix+"disable-public-network"] = "true"
			svc.Spec.Ports[0].NodePort = 30081
		})
		w.expect("to private addresses", "remove server 1", "add server 1 (private)", "add server 1",
			"update listener 80 → 30081, http :10256/healthz every 10s, timeout 15s, 3 tries")
		time.Sleep(30 * time.Minute)
		w.restart()
		w.expect("half an hour later")
		if events := w.said(); len(events) != 1 || !strings.Contains(events[0], "private addresses") {
			t.Errorf("Events %q, want one", events)
		}
		w.cloud.SetFault(nil)
		time.Sleep(40 * time.Minute)
		w.settle()
		w.expect("an hour later", "remove server 1", "add server 1 (private)", "remove server 2", "add server 2 (private)", "set public interface false")
		if got := w.service("web"); accepted(got) != "True Accepted" || got.Annotations[lb.AnnotationState] != "" {
			t.Errorf("accepted %s, remembered %q", accepted(got), got.Annotations[lb.AnnotationState])
		}
	})
}

// Targets whose turn has not come wait for the others' verdict, also over a restart, and what is reached through the
// public interface keeps it; in the end nothing is remembered.
func TestTargetsWaitForTheirTurn(t *testing.T) {
	inWorld(t, lbtest.NewCloud(), nodes(3), func(w *world) {
		w.create(service("web"))
		w.healthy(2, 0) // one has no verdict yet
		w.cloud.Counts()
		w.edit("web", func(svc *corev1.Service) {
			toPrivate(svc)
			svc.Annotations[lb.HetznerPrefix+"disable-public-network"] = "true"
			svc.Spec.Ports[0].NodePort = 30081
		})
		w.expect("no turn yet", "update listener 80 → 30081, http :10256/healthz every 10s, timeout 15s, 3 tries")
		time.Sleep(time.Minute)
		w.restart()
		time.Sleep(time.Minute)
		w.settle()
		w.expect("no verdict yet")
		if w.service("web").Annotations[lb.AnnotationState] == "" {
			t.Error("the next process would wait from the beginning")
		}
		w.healthy(1, 2) // before any has moved, that says nothing of addresses
		time.Sleep(15 * time.Second)
		w.settle()
		w.expect("the verdict", "remove server 1", "add server 1 (private)", "remove server 2", "add server 2 (private)", "remove server 3", "add server 3 (private)", "set public interface false")
		if got := w.service("web"); accepted(got) != "True Accepted" || got.Annotations[lb.AnnotationState] != "" {
			t.Errorf("accepted %s, remembered %q", accepted(got), got.Annotations[lb.AnnotationState])
		}
		w.later()
		w.expect("after that")
	})
}

// Targets that are all unhealthy have nothing to lose, when they had time to become healthy.
func TestUnhealthyTargetsHaveOneTurn(t *testing.T) {
	inWorld(t, lbtest.NewCloud(), nodes(3), func(w *world) {
		w.create(service("web"))
		w.healthy(0, 3)
		w.cloud.Counts()
		w.edit("web", toPrivate)
		time.Sleep(30 * time.Second)
		w.settle()
		w.expect("no turn yet")
		time.Sleep(time.Minute)
		w.settle()
		w.expect("all at once", "remove server 1", "add server 1 (private)", "remove server 2", "add server 2 (private)", "remove server 3", "add server 3 (private)")
	})
}

// A Service that is refused meanwhile waits for nothing: its targets stay reached as they are.
func TestARefusedServiceHasNoTurn(t *testing.T) {
	inWorld(t, lbtest.NewCloud(), nodes(3), func(w *world) {
		w.create(service("web"))
		w.healthy(2, 0)
		w.edit("web", toPrivate)
		w.edit("web", func(svc *corev1.Service) { svc.Annotations[lb.HetznerPrefix+"health-check-retries"] = "9" })
		w.later()
		w.cloud.Counts()
		time.Sleep(time.Hour)
		w.settle()
		if reads, writes := w.cloud.Counts(); reads > 15 || len(writes) != 0 {
			t.Errorf("%d reads and %q in an hour", reads, writes)
		}
		if text := w.service("web").Annotations[lb.AnnotationState]; text != "" {
			t.Errorf("remembered %q", text)
		}
	})
}

// A turn that fails is tried again at the pace of all failures, not at that of verdicts: each try takes a healthy
// target out of service.
func TestFailingTurnsAreTriedLessAndLess(t *testing.T) {
	inWorld(t, lbtest.NewCloud(), nodes(3), func(w *world) {
		w.create(service("web"))
		w.healthy(3, 0)
		tries := 0
		w.cloud.SetFault(func(op lb.Op) error {
			if add, ok := op.(lb.AddTarget); ok && add.Target.Private {
				tries++
				return errors.New("the cloud is unreachable")
			}
			return nil
		})
		w.edit("web", toPrivate)
		time.Sleep(time.Hour)
		w.settle()
		if tries == 0 || tries > 40 {
			t.Errorf("%d tries in an hour", tries)
		}
	})
}

// Whose load balancer is gone, and who is refused another, waits for no turn.
func TestTurnsEndWithTheLoadBalancer(t *testing.T) {
	inWorld(t, lbtest.NewCloud(), nodes(3), func(w *world) {
		w.create(service("web"))
		w.healthy(2, 0) // one has no verdict yet
		w.edit("web", toPrivate)
		if w.service("web").Annotations[lb.AnnotationState] == "" {
			t.Fatal("no turn is waited for")
		}
		if err := w.cloud.Apply(t.Context(), w.cloud.All()[0], lb.Delete{}); err != nil {
			t.Fatal(err)
		}
		w.edit("web", func(svc *corev1.Service) { svc.Annotations[lb.HetznerPrefix+"health-check-retries"] = "9" })
		w.later()
		w.cloud.Counts()
		time.Sleep(time.Hour)
		w.settle()
		if reads, _ := w.cloud.Counts(); reads > 50 || w.service("web").Annotations[lb.AnnotationState] != "" {
			t.Errorf("%d reads in an hour, remembered %q", reads, w.service("web").Annotations[lb.AnnotationState])
		}
	})
}
