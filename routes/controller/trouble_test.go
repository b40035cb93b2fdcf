package controller_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/routes"
)

func stale(i int) routes.Route {
	return routes.Route{Dst: netip.MustParsePrefix(fmt.Sprintf("10.244.%d.0/24", i)), Via: netip.MustParseAddr("10.0.0.77")}
}

// A server list that lacks servers, rightly or wrongly, changes no condition and deletes no route
// as long as the routes exist.
func TestVanishedServersProveNothing(t *testing.T) {
	withFixture(t, func(w *fixture) {
		defer w.start()()
		for i := range 5 {
			w.servers.attach(fmt.Sprint("n", i), fmt.Sprintf("10.0.0.%d", i+2))
			w.join(fmt.Sprint("n", i), fmt.Sprintf("10.244.%d.0/24", i))
		}
		rest(5 * time.Second)
		writes := w.conditionWrites() + len(w.table.log())
		for i := range 5 {
			w.servers.vanish(fmt.Sprint("n", i))
		}
		rest(time.Hour)
		for i := range 5 {
			w.expectCondition(fmt.Sprint("n", i), "False RouteCreated")
		}
		if n := w.conditionWrites() + len(w.table.log()) - writes; n != 0 {
			t.Errorf("%d writes because servers weren't seen: %q", n, w.table.log())
		}
	})
}

// A table that rejects every write, as with a read-only token, takes few requests, however many
// nodes wait.
func TestPermanentFailureIsCheap(t *testing.T) {
	withFixture(t, func(w *fixture) {
		w.table.fail = func(string) (error, bool) { return errBroken, false }
		for i := range 100 {
			w.servers.attach(fmt.Sprint("n", i), fmt.Sprintf("10.0.%d.2", i))
			w.join(fmt.Sprint("n", i), fmt.Sprintf("10.244.%d.0/24", i))
		}
		defer w.start()()
		rest(time.Hour)
		if n := len(w.table.log()); n > 300 {
			t.Errorf("%d failing writes in an hour", n)
		}
		if w.table.looks() > 600 {
			t.Errorf("%d looks at the table in an hour", w.table.looks())
		}
		w.table.mu.Lock()
		w.table.fail = nil
		w.table.mu.Unlock()
		rest(10 * time.Minute)
		for i := range 100 {
			w.expectCondition(fmt.Sprint("n", i), "False RouteCreated")
		}
	})
}

// A failed route is retried soon, before the next list of the table.
func TestAFailureIsRetriedSoon(t *testing.T) {
	withFixture(t, func(w *fixture) {
		w.cfg.Period = time.Hour
		failures := 0
		w.table.fail = func(string) (error, bool) {
			if failures++; failures <= 2 {
				return errBroken, false
			}
			return nil, false
		}
		defer w.start()()
		w.servers.attach("a", "10.0.0.2")
		w.join("a", "10.244.1.0/24")
		rest(10 * time.Second)
		w.expectCondition("a", "False RouteCreated")
	})
}

// The condition contains the error of a route that can't be added, and is written once for it.
func TestTheConditionContainsTheError(t *testing.T) {
	withFixture(t, func(w *fixture) {
		w.table.fail = func(string) (error, bool) { return errBroken, false }
		defer w.start()()
		w.servers.attach("a", "10.0.0.2")
		w.join("a", "10.244.1.0/24")
		rest(10 * time.Minute)
		node, err := w.client.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		c := kube.Condition(node, corev1.NodeNetworkUnavailable)
		if !strings.Contains(c.Message, errBroken.Error()) {
			t.Errorf("the message is %q, want the error", c.Message)
		}
		if n := w.conditionWrites(); n > 2 {
			t.Errorf("the condition was written %d times", n)
		}
	})
}

// A route that can't be deleted doesn't block the other deletions, and still counts in the table's
// usage.
func TestAnUndeletableRouteHoldsNothingUp(t *testing.T) {
	withFixture(t, func(w *fixture) {
		w.cfg.Limit, w.table.limit = 4, 4
		for i := range 4 {
			w.wrote(stale(i))
		}
		w.table.fail = func(write string) (error, bool) {
			if strings.HasPrefix(write, "delete 10.244.0.0/24") {
				return errBroken, false
			}
			return nil, false
		}
		w.servers.attach("a", "10.0.0.2")
		w.join("a", "10.244.100.0/24")
		defer w.start()()
		rest(30 * time.Minute)
		w.expectTable("10.244.0.0/24 via 10.0.0.77", "10.244.100.0/24 via 10.0.0.2")
		adds := 0
		for _, write := range w.table.log() {
			if strings.HasPrefix(write, "add ") {
				adds++
			}
		}
		if adds != 1 {
			t.Errorf("%d additions were sent, want only the one that there was room for: %q", adds, w.table.log())
		}
	})
}

// The limit of deletions holds over time, however often passes run.
func TestTheCapIsABrake(t *testing.T) {
	withFixture(t, func(w *fixture) {
		for i := range 40 {
			w.wrote(stale(i))
		}
		w.servers.attach("a", "10.0.0.2")
		defer w.start()()
		for i := range 20 { // Node events keep passes running
			w.join(fmt.Sprint("n", i), "")
			rest(2 * time.Second)
		}
		if n := len(w.table.log()); n != 10 {
			t.Errorf("%d deletions within 40 s, want a quarter of 40", n)
		}
		rest(time.Hour)
		w.expectTable("")
	})
}

// A limit that was learnt from a full table is dropped as soon as any route disappears.
func TestATaughtLimitIsForgottenWithAFreedSlot(t *testing.T) {
	withFixture(t, func(w *fixture) {
		w.table.limit = 3
		defer w.start()()
		for i := range 3 {
			w.servers.attach(fmt.Sprint("n", i), fmt.Sprintf("10.0.0.%d", i+2))
			w.join(fmt.Sprint("n", i), fmt.Sprintf("10.244.%d.0/24", i))
		}
		rest(5 * time.Second)
		w.servers.attach("n3", "10.0.0.9")
		w.join("n3", "10.244.3.0/24")
		rest(10 * time.Second)
		w.expectCondition("n3", "True RouteTableFull")
		w.table.mu.Lock()
		w.table.limit = 4 // raised, and another client frees a slot too
		w.table.routes = w.table.routes[1:]
		w.table.mu.Unlock()
		rest(3 * time.Minute)
		w.expectCondition("n0", "False RouteCreated")
		w.expectCondition("n3", "False RouteCreated")
	})
}

// An existing route is replaced only with a fresh list of servers: the cached one may be older than
// the route.
func TestAReplacementNeedsAFreshList(t *testing.T) {
	withFixture(t, func(w *fixture) {
		defer w.start()()
		w.servers.attach("a", "10.0.0.2")
		w.join("a", "10.244.1.0/24")
		rest(2 * time.Second)
		w.servers.attach("a", "10.0.0.5") // and another manager has already replaced the route
		w.table.mu.Lock()
		w.table.routes = []routes.Route{{Dst: netip.MustParsePrefix("10.244.1.0/24"), Via: netip.MustParseAddr("10.0.0.5")}}
		w.table.mu.Unlock()
		rest(3 * time.Minute)
		w.expectTable("10.244.1.0/24 via 10.0.0.5")
		if n := len(w.table.log()); n != 1 {
			t.Errorf("the right route was written over: %q", w.table.log())
		}
	})
}

// Nodes that join while routes are being written don't count as detached because they are missing
// in the older list.
func TestJoiningDuringAPassIsNotDetachment(t *testing.T) {
	withFixture(t, func(w *fixture) {
		defer w.start()()
		for i := range 5 {
			w.servers.attach(fmt.Sprint("n", i), fmt.Sprintf("10.0.0.%d", i+2))
			w.join(fmt.Sprint("n", i), fmt.Sprintf("10.244.%d.0/24", i))
		}
		rest(400 * time.Millisecond)
		for i := range 5 {
			w.servers.attach(fmt.Sprint("m", i), fmt.Sprintf("10.0.1.%d", i+2))
			w.join(fmt.Sprint("m", i), fmt.Sprintf("10.244.1%d.0/24", i))
		}
		rest(time.Minute)
		for i := range 5 {
			w.expectCondition(fmt.Sprint("m", i), "False RouteCreated")
		}
		if events := w.drainEvents(); len(events) > 0 {
			t.Errorf("events %q", events)
		}
		if n := w.conditionWrites(); n != 20 {
			t.Errorf("%d condition writes for 10 nodes, want 20", n)
		}
	})
}

func TestAFailedConditionIsWrittenAgain(t *testing.T) {
	withFixture(t, func(w *fixture) {
		w.refuse = 3
		defer w.start()()
		w.servers.attach("a", "10.0.0.2")
		w.join("a", "10.244.1.0/24")
		rest(5 * time.Second)
		w.expectCondition("a", "False RouteCreated")
	})
}
