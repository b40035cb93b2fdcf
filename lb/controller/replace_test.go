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
)

// noPrivateTargets makes the cloud reject targets at their private addresses; least returns the
// smallest number of targets of the load balancer so far.
func noPrivateTargets(w *world, n int) (least func() int) {
	now, low := n, n
	w.cloud.setFault(func(op lb.Op) error {
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

// While the cloud rejects private targets, a change to them removes at most one target at a time,
// with any further events, and ends with all targets, including a node that joined.
func TestRefusedPrivateTargetsLoseNoTraffic(t *testing.T) {
	for seed := range uint64(30 / slowdown) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			n := 1 + r.IntN(6)
			inWorld(t, newCloud(), nodes(n), func(w *world) {
				w.create(service("web"))
				least := noPrivateTargets(w, n)
				w.edit("web", toPrivate)
				for range 6 {
					[]func(){
						w.restart, w.later, func() { time.Sleep(2 * time.Hour) },
						func() { w.edit("web", func(svc *corev1.Service) { svc.Annotations["a"] = fmt.Sprint(r.Int()) }) },
					}[r.IntN(4)]()
				}
				w.settle()
				if low := least(); low < n-1 {
					t.Errorf("there were only %d targets of %d", low, n)
				}
				if _, err := w.api.CoreV1().Nodes().Create(context.Background(), node("late", 99), metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				w.later()
				targets := w.cloud.all()[0].Targets
				if len(targets) != n+1 ||
					slices.ContainsFunc(targets, func(t lb.Target) bool { return t.Private }) {
					t.Errorf("targets %v of %d nodes", targets, n+1)
				}
				if got := w.service("web"); accepted(got) != "False Rejected" || !strings.Contains(got.Status.Conditions[0].Message, "the server is not in the network") {
					t.Errorf("accepted %s: %s", accepted(got), got.Status.Conditions[0].Message)
				}
			})
		})
	}
}

// Each rejection is reported once, the other changes of the Service are applied, and the targets
// are retried after an hour.
func TestRefusedPrivateTargetsAreTriedAgain(t *testing.T) {
	inWorld(t, newCloud(), nodes(2), func(w *world) {
		w.create(service("web"))
		noPrivateTargets(w, 2)
		w.message()
		w.cloud.counts()
		w.edit("web", func(svc *corev1.Service) {
			toPrivate(svc)
			svc.Annotations[lb.HetznerPrefix+"disable-public-network"] = "true"
			svc.Spec.Ports[0].NodePort = 30081
		})
		w.expect("to private addresses", "remove server 1", "add server 1 (private)", "add server 1",
			"update listener 80 → 30081, http :10256/healthz every 10s, timeout 15s, 3 tries")
		time.Sleep(30 * time.Minute)
		w.settle()
		w.expect("half an hour later", "remove server 2", "add server 2 (private)", "add server 2")
		if events := w.message(); len(events) != 2 || !strings.Contains(events[0], "(private)") {
			t.Errorf("Events %q, want one for each target", events)
		}
		w.cloud.setFault(nil)
		time.Sleep(50 * time.Minute)
		w.settle()
		w.expect("an hour later", "remove server 1", "add server 1 (private)", "remove server 2", "add server 2 (private)", "set public interface false")
		if got := w.service("web"); accepted(got) != "True Accepted" {
			t.Errorf("accepted %s", accepted(got))
		}
	})
}

// Targets without a verdict may be healthy, so none is replaced until they had their time; then one
// is replaced at a time, also by another process, and the public interface is disabled last.
func TestTargetsAreReplacedOneByOne(t *testing.T) {
	inWorld(t, newCloud(), nodes(3), func(w *world) {
		w.create(service("web"))
		w.healthy(2, 0) // one has no verdict yet
		w.cloud.counts()
		w.edit("web", func(svc *corev1.Service) {
			toPrivate(svc)
			svc.Annotations[lb.HetznerPrefix+"disable-public-network"] = "true"
			svc.Spec.Ports[0].NodePort = 30081
		})
		w.expect("no verdict yet", "update listener 80 → 30081, http :10256/healthz every 10s, timeout 15s, 3 tries")
		w.healthy(3, 0)
		time.Sleep(15 * time.Second)
		w.settle()
		w.expect("the verdict", "remove server 1", "add server 1 (private)")
		w.healthy(0, 0)
		w.restart()
		w.expect("the first is not healthy yet")
		w.healthy(3, 0)
		time.Sleep(time.Minute)
		w.settle()
		w.expect("all are healthy", "remove server 2", "add server 2 (private)", "remove server 3", "add server 3 (private)", "set public interface false")
		if got := w.service("web"); accepted(got) != "True Accepted" {
			t.Errorf("accepted %s", accepted(got))
		}
		w.later()
		w.expect("after that")
	})
}

// If all targets are unhealthy and had time to become healthy, they are replaced together.
func TestUnhealthyTargetsAreReplacedTogether(t *testing.T) {
	inWorld(t, newCloud(), nodes(3), func(w *world) {
		w.create(service("web"))
		w.healthy(0, 3)
		w.cloud.counts()
		w.edit("web", toPrivate)
		time.Sleep(30 * time.Second)
		w.settle()
		w.expect("they may yet be healthy")
		time.Sleep(time.Minute)
		w.settle()
		w.expect("all at once", "remove server 1", "add server 1 (private)", "remove server 2", "add server 2 (private)", "remove server 3", "add server 3 (private)")
	})
}

// A Service that is refused during the change doesn't wait: its targets keep their addresses.
func TestNoTargetOfARefusedServiceIsReplaced(t *testing.T) {
	inWorld(t, newCloud(), nodes(3), func(w *world) {
		w.create(service("web"))
		w.healthy(2, 0)
		w.edit("web", toPrivate)
		w.edit("web", func(svc *corev1.Service) { svc.Annotations[lb.HetznerPrefix+"health-check-retries"] = "9" })
		w.later()
		w.cloud.counts()
		time.Sleep(time.Hour)
		w.settle()
		if reads, writes := w.cloud.counts(); reads > 15 || len(writes) != 0 {
			t.Errorf("%d reads and %q in an hour", reads, writes)
		}
	})
}

// A failing replacement is retried with the backoff of all failures, not as often as verdicts are
// read: each attempt removes a healthy target for a moment.
func TestFailingReplacementsAreTriedLessAndLess(t *testing.T) {
	inWorld(t, newCloud(), nodes(3), func(w *world) {
		w.create(service("web"))
		w.healthy(3, 0)
		tries := 0
		w.cloud.setFault(func(op lb.Op) error {
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
