package controller

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/underlay-ccm/underlay/addresses"
)

// times applies a fault to the first n requests of a kind.
func times(n int, kind string, what fault) func(call) fault {
	return func(c call) fault {
		if c.kind != kind || n == 0 {
			return fault{}
		}
		n--
		return what
	}
}

// After any failure of a request, the Service ends up with one address, which is stored, and no
// address is assigned twice.
func TestRequestsThatFail(t *testing.T) {
	for _, kind := range []string{"GET configmaps", "POST configmaps", "PUT configmaps", "PATCH services/status", "LIST services"} {
		for name, what := range map[string]fault{"refused": {refuse: true}, "answer lost": {lose: true}, "lost": {drop: true}, "late": {delay: 20 * time.Second}} {
			t.Run(kind+" "+name, func(t *testing.T) {
				inWorld(t, func(w *world) {
					w.node("a")
					w.service("zero")
					w.faults = times(2, kind, what)
					w.start()
					w.line.inject(times(2, kind, what))
					w.service("one")
					w.after(2 * time.Minute)
					w.has("zero", "192.0.2.1")
					w.has("one", "192.0.2.2")
					w.expectCondition("one", "True Accepted", "")
					// A write without a reply is reported only in the condition.
					if n := len(w.events.of("one")); n != 1 && (n > 1 || !what.lose) {
						t.Errorf("events %q", w.events.of("one"))
					}
				})
			})
		}
	}
}

// The process dies between the ledger and the status: the next one assigns the stored address.
func TestACrashBeforeTheStatus(t *testing.T) {
	inWorld(t, func(w *world) {
		w.node("a")
		w.start()
		w.line.inject(times(1000, "PATCH services/status", fault{drop: true}))
		w.service("one", annotated("underlay.dev/addresses", "192.0.2.3"))
		w.settle()
		w.has("one", "")
		w.kill()
		w.editService("one", func(svc *corev1.Service) { svc.Annotations = nil })
		w.service("two")
		w.start()
		w.has("one", "192.0.2.3")
		w.has("two", "192.0.2.1")
	})
}

// A former leader with blocked watches plans on the current ledger, releases no address of Services
// that it lacks, and writes no status.
func TestAFormerLeader(t *testing.T) {
	inWorld(t, func(w *world) {
		w.node("a")
		w.start()
		w.service("one")
		w.settle()
		former := w.process
		former.line.hold()
		w.start()
		w.service("two")
		w.editService("one", func(svc *corev1.Service) { svc.Annotations["underlay.dev/addresses"] = "192.0.2.4" })
		w.settle()
		w.api.remove("services", "one")
		// This is another Service of the same name.
		w.service("one", annotated("underlay.dev/addresses", "192.0.2.4"))
		w.settle()
		w.node("b")
		w.editNode("a", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse })
		w.settle()
		w.after(10 * time.Minute) // the former one reads the ledger every minute
		w.has("one", "192.0.2.4")
		w.has("two", "192.0.2.2")
		former.line.release()
		former.kill()
		w.after(time.Minute)
		w.has("one", "192.0.2.4")
		w.has("two", "192.0.2.2")
		if w.holder("one") != "b" || w.holder("two") != "b" {
			t.Errorf("held by %s and %s", w.holder("one"), w.holder("two"))
		}
	})
}

// With two concurrent leaders, every address has one Service, and conflicts are counted.
func TestTwoLeaders(t *testing.T) {
	inWorld(t, func(w *world) {
		w.node("a")
		w.start(func(c *Config) { c.Pools = []Pool{poolNamed("many", "192.0.2.0/24")} })
		other := w.process
		w.start(func(c *Config) { c.Pools = []Pool{poolNamed("many", "192.0.2.0/24")} })
		for _, name := range strings.Split("abcdefghijklmnop", "") {
			w.service(name)
			w.after(7 * time.Millisecond)
		}
		w.after(time.Minute)
		seen := map[string]bool{}
		for _, name := range strings.Split("abcdefghijklmnop", "") {
			shows := joined(shown(w.api.service(name)))
			if shows == "" || seen[shows] {
				t.Errorf("Service %s shows %q", name, shows)
			}
			seen[shows] = true
		}
		conflicts := w.metric("ledger_conflicts_total")
		other.kill()
		w.registry = other.registry
		if conflicts+w.metric("ledger_conflicts_total") == 0 {
			t.Error("no conflict is counted")
		}
	})
}

// A deleted ledger is rebuilt from the Services' statuses and the nodes' reports: no Service gets
// another address, no address moves, and epochs increase.
func TestALostLedger(t *testing.T) {
	inWorld(t, func(w *world) {
		w.node("a")
		w.node("b")
		w.start()
		w.service("one", annotated("underlay.dev/addresses", "192.0.2.3"))
		w.service("two")
		w.settle()
		for _, e := range w.api.ledger().Entries() {
			w.report(e.Holder, addresses.Report{Held: []addresses.Hold{{Address: e.Address, Epoch: 41}}})
		}
		one, two := w.holder("one"), w.holder("two")
		w.editService("one", func(svc *corev1.Service) { svc.Annotations = nil })
		w.settle()
		w.api.remove("configmaps", addresses.LedgerName)
		w.after(2 * time.Minute)
		w.has("one", "192.0.2.3")
		w.has("two", "192.0.2.1")
		if w.holder("one") != one || w.holder("two") != two {
			t.Errorf("held by %s and %s, before by %s and %s", w.holder("one"), w.holder("two"), one, two)
		}
		for _, e := range w.api.ledger().Entries() {
			if e.Epoch <= 41 {
				t.Errorf("%s has epoch %d", e.Address, e.Epoch)
			}
		}
		if got := w.events.of(addresses.LedgerName + " Warning AddressLedgerRebuilt"); len(got) != 1 {
			t.Errorf("events %q", got)
		}
	})
}

// Services of another controller keep their addresses, and no loss is reported.
func TestServicesThatComeFromElsewhere(t *testing.T) {
	inWorld(t, func(w *world) {
		w.node("a")
		w.service("new")
		w.service("old", func(svc *corev1.Service) {
			svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
		})
		w.start()
		w.has("old", "192.0.2.1")
		w.has("new", "192.0.2.2")
		if got := w.events.of(addresses.LedgerName); len(got) > 0 {
			t.Errorf("events %q", got)
		}
	})
}

// An invalid ledger and all Services are left unchanged, until a user repairs the ledger.
func TestADamagedLedger(t *testing.T) {
	inWorld(t, func(w *world) {
		w.node("a")
		w.start()
		w.service("one")
		w.settle()
		whole := w.api.maps.Objects[addresses.LedgerName].(*corev1.ConfigMap).Data[addresses.LedgerKey]
		damage := func(text string) {
			editObject(w.api, "configmaps", addresses.LedgerName, func(m *corev1.ConfigMap) { m.Data = map[string]string{addresses.LedgerKey: text} })
		}
		damage(whole[:20])
		w.api.written()
		w.service("two")
		w.after(10 * time.Minute)
		w.has("two", "")
		if w.metric("ledger_damaged") != 1 {
			t.Error("the metric says nothing")
		}
		got := w.events.of(addresses.LedgerName + " Warning AddressLedgerDamaged")
		if len(got) != 1 || !strings.Contains(got[0], "key ledger") || !strings.Contains(got[0], "delete the ConfigMap") {
			t.Errorf("events %q", got)
		}
		if n := w.api.count("PATCH services/status"); n > 0 {
			t.Errorf("%d Services were written to", n)
		}
		damage(whole)
		w.after(time.Minute)
		w.has("one", "192.0.2.1")
		w.has("two", "192.0.2.2")
		if w.metric("ledger_damaged") != 0 {
			t.Error("the metric goes on")
		}
	})
}

// An address that moves from one Service to another appears in the new one's status only after it
// was removed from the old one's.
func TestAnAddressGoesToAnotherService(t *testing.T) {
	inWorld(t, func(w *world) {
		w.node("a")
		w.start()
		w.service("z-first")
		w.settle()
		failing := true
		w.line.inject(func(c call) fault {
			return fault{drop: failing && c.kind == "PATCH services/status" && c.name == "z-first"}
		})
		w.service("a-second", annotated("underlay.dev/addresses", "192.0.2.1"))
		w.settle()
		w.expectCondition("a-second", "False AddressTaken", "z-first")
		w.editService("z-first", func(svc *corev1.Service) { svc.Annotations["underlay.dev/addresses"] = "192.0.2.2" })
		w.after(time.Minute)
		w.has("a-second", "")
		w.line.inject(nil)
		w.after(time.Minute)
		w.has("z-first", "192.0.2.2")
		w.has("a-second", "192.0.2.1")
	})
}

// A Service that requests no address any more releases it, and loses its condition.
func TestAServiceThatIsNoLoadBalancerAnyMore(t *testing.T) {
	inWorld(t, func(w *world) {
		w.node("a")
		w.start()
		w.service("one", dualStack)
		w.settle()
		w.editService("one", func(svc *corev1.Service) { svc.Spec.IPFamilies = svc.Spec.IPFamilies[:1] })
		w.settle()
		w.has("one", "192.0.2.1")
		w.editService("one", func(svc *corev1.Service) {
			svc.Spec.Type, svc.Spec.LoadBalancerClass = corev1.ServiceTypeClusterIP, nil
			svc.Status.LoadBalancer = corev1.LoadBalancerStatus{} // as the API server does
		})
		w.settle()
		if c := meta.FindStatusCondition(w.api.service("one").Status.Conditions, ConditionAccepted); c != nil {
			t.Errorf("condition %v", c)
		}
		for _, e := range w.api.ledger().Entries() {
			if len(e.Shares) > 0 || e.Holder != "" {
				t.Errorf("entry %+v", e)
			}
		}
	})
}

// Another client's write of the status is reverted.
func TestAStatusThatAnotherClientWrites(t *testing.T) {
	inWorld(t, func(w *world) {
		w.node("a")
		w.start()
		w.service("one")
		w.settle()
		w.editService("one", func(svc *corev1.Service) {
			svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.4"}}
		})
		w.settle()
		w.has("one", "192.0.2.1")
	})
}

func TestCheckNamesTheUsersOfARemovedPool(t *testing.T) {
	inWorld(t, func(w *world) {
		w.node("a")
		w.start()
		w.service("one", annotated("underlay.dev/addresses", "192.0.2.4"))
		w.settle()
		w.kill()
		client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://fake", Transport: &line{api: w.api}, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
		if err != nil {
			t.Fatal(err)
		}
		smaller := []Pool{poolNamed("segment", "192.0.2.1-192.0.2.3")}
		orphans, err := Check(w.t.Context(), client, "kube-system", smaller)
		if err != nil || len(orphans) != 1 || !strings.Contains(orphans[0].Problem(), "shop/one") || orphans[0].Address.String() != "192.0.2.4" {
			t.Errorf("%v, %v", orphans, err)
		}
		if orphans, err := Check(w.t.Context(), client, "kube-system", usual()); err != nil || len(orphans) > 0 {
			t.Errorf("with the pool: %v, %v", orphans, err)
		}
		// If that happens nevertheless, the Service keeps its address.
		w.start(func(c *Config) { c.Pools = smaller })
		w.after(time.Minute)
		w.has("one", "192.0.2.4")
	})
}

// A replaced ledger is read before a status is written from the old one.
func TestAReplacedLedger(t *testing.T) {
	inWorld(t, func(w *world) {
		w.node("a")
		w.start()
		w.service("one")
		w.settle()
		editObject(w.api, "configmaps", addresses.LedgerName, func(m *corev1.ConfigMap) {
			m.Data = map[string]string{addresses.LedgerKey: strings.ReplaceAll(m.Data[addresses.LedgerKey], "192.0.2.1", "192.0.2.3")}
		})
		w.editService("one", func(svc *corev1.Service) { svc.Status.LoadBalancer.Ingress = nil })
		w.after(5 * time.Second)
		w.has("one", "192.0.2.3")
	})
}

// A ledger is rebuilt from the Services' current statuses, not from a cache.
func TestALostLedgerAndAnOldCache(t *testing.T) {
	inWorld(t, func(w *world) {
		one := func(c *Config) { c.Pools = []Pool{poolNamed("one", "192.0.2.1")} }
		w.node("a")
		w.start(one)
		w.service("old")
		w.settle()
		behind := w.process
		behind.line.hold()
		w.start(one)
		w.api.remove("services", "old")
		w.settle()
		w.service("new")
		w.settle()
		w.has("new", "192.0.2.1")
		w.kill()
		w.api.remove("configmaps", addresses.LedgerName)
		w.after(2 * time.Minute)
		if got := w.api.ledger().Of(string(w.api.service("new").UID)); len(got) != 1 {
			t.Errorf("the Service has %v", got)
		}
		behind.line.release()
		behind.kill()
	})
}

// Another controller also claims the Service, and writes its own address whenever that is removed.
func TestAnotherControllerWritesTheStatus(t *testing.T) {
	inWorld(t, func(w *world) {
		w.node("a")
		w.start()
		w.service("one")
		w.settle()
		overwrite := func() {
			w.editService("one", func(svc *corev1.Service) {
				svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.9"}}
			})
		}
		overwrite()
		w.settle()
		w.has("one", "192.0.2.1") // a single write is reverted at once
		before := w.api.count("PATCH services/status")
		for range 1200 {
			if got := joined(shown(w.api.service("one"))); got != "203.0.113.9" {
				overwrite()
			}
			w.after(100 * time.Millisecond)
		}
		if n := w.api.count("PATCH services/status") - before; n < 3 || n > 12 {
			t.Errorf("%d writes in two minutes", n)
		}
		if got := w.events.of("one Warning AddressStatusOverwritten"); len(got) != 1 || !strings.Contains(got[0], "203.0.113.9") {
			t.Errorf("events %q", got)
		}
		w.service("two")
		w.settle()
		w.has("two", "192.0.2.2")
		w.after(2 * lastOverwriteWait)
		w.has("one", "192.0.2.1")
	})
}
