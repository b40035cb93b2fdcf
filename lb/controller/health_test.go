package controller_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/lb"
)

// withReport returns all Events since the last call.
func (w *world) withReport() (events []string) {
	for {
		select {
		case e := <-w.events.Events:
			events = append(events, e)
		default:
			return events
		}
	}
}

func countOf(events []string, text string) (n int) {
	for _, e := range events {
		if strings.Contains(e, text) {
			n++
		}
	}
	return n
}

// A listener without a healthy target for the time of a verdict is reported at the Service once,
// over a restart too, and again when it has one.
func TestAListenerWithoutHealthyTargetsIsReported(t *testing.T) {
	for name, unhealthy := range map[string]int{"unhealthy": 2, "never judged": 0} {
		t.Run(name, func(t *testing.T) {
			cloud := newCloud()
			cloud.cause = lb.Cause{Detail: lb.DetailConnectLate}
			inWorld(t, cloud, nodes(2), func(w *world) {
				w.create(service("web"))
				w.healthy(0, unhealthy)
				w.restart() // it syncs at once
				if got := accepted(w.service("web")); got != "True Accepted" {
					t.Errorf("before the time of a verdict: accepted %s", got)
				}
				w.withReport()
				time.Sleep(time.Minute)
				w.settle()
				if got := w.service("web"); accepted(got) != "False NoHealthyTarget" || ingress(got) == "" {
					t.Errorf("accepted %s, addresses %q", accepted(got), ingress(got))
				}
				events := w.withReport()
				if countOf(events, "NoHealthyTarget port 80: no target is healthy") != 1 || len(events) != 1 {
					t.Errorf("Events %q", events)
				}
				if why := countOf(events, "connecting timed out at 2 targets"); (why == 1) != (unhealthy == 2) {
					t.Errorf("Events %q, want the reason with targets that are unhealthy, and only with those", events)
				}
				w.written()
				w.restart()
				w.later()
				if events, writes := w.withReport(), w.written(); len(events) != 0 || writes != 0 {
					t.Errorf("after a restart: Events %q, %d writes", events, writes)
				}
				w.healthy(1, 1)
				w.later()
				if got := accepted(w.service("web")); got != "True Accepted" {
					t.Errorf("healed: accepted %s", got)
				}
				w.later()
				if events := w.withReport(); countOf(events, "Normal TargetsHealthy port 80") != 1 || len(events) != 1 {
					t.Errorf("healed: Events %q", events)
				}
			})
		})
	}
}

// A Service without ready endpoints has no healthy target under policy Local, which is no fault of
// its load balancer.
func TestAServiceWithoutEndpointsIsAccepted(t *testing.T) {
	inWorld(t, newCloud(), nodes(2), func(w *world) {
		svc := service("web")
		toLocal(svc)
		w.create(svc)
		w.healthy(0, 2)
		w.withReport()
		w.later()
		time.Sleep(time.Minute)
		w.settle()
		if got := accepted(w.service("web")); got != "True Accepted" {
			t.Errorf("accepted %s", got)
		}
		if events := w.withReport(); countOf(events, "no ready endpoint") != 1 || len(events) != 1 {
			t.Errorf("Events %q", events)
		}
	})
}

// The verdict on a new listener is read before the next regular resync.
func TestANewListenerIsLookedAt(t *testing.T) {
	inWorld(t, newCloud(), nodes(2), func(w *world) {
		w.create(service("web"))
		w.healthy(2, 0)
		w.later()
		w.edit("web", func(svc *corev1.Service) {
			svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: "tls", Port: 443, Protocol: "TCP", NodePort: 30443})
		})
		w.withReport()
		for _, s := range w.cloud.all() {
			s.Verdicts[443] = verdicts(s.Targets, 0, 2)
			w.cloud.change(s.ID, func(have *lb.State) { *have = s })
		}
		time.Sleep(2 * time.Minute)
		w.settle()
		if events := w.withReport(); countOf(events, "NoHealthyTarget port 443") != 1 || countOf(events, "port 80") != 0 {
			t.Errorf("Events %q", events)
		}
	})
}
