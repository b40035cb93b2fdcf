package controller_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/routes"
)

func TestANodeBecomesReachableWhenItsRouteStands(t *testing.T) {
	withFixture(t, func(w *fixture) {
		defer w.start()()
		w.servers.attach("a", "10.0.0.2")
		w.join("a", "10.244.1.0/24")
		rest(100 * time.Millisecond) // the write is in flight
		w.expectCondition("a", "True NoRouteCreated")
		rest(time.Second)
		w.expectCondition("a", "False RouteCreated")
		w.expectTable("10.244.1.0/24 via 10.0.0.2")
		if n := w.conditionWrites(); n != 2 {
			t.Errorf("%d condition writes, want 2", n)
		}
	})
}

func TestAtRestNothingIsWritten(t *testing.T) {
	withFixture(t, func(w *fixture) {
		defer w.start()()
		w.servers.attach("a", "10.0.0.2")
		w.join("a", "10.244.1.0/24")
		rest(30 * time.Second) // and the search for changes of a former leader
		writes, lists := len(w.table.log())+w.conditionWrites(), w.table.looks()
		rest(time.Hour)
		if now := len(w.table.log()) + w.conditionWrites(); now != writes {
			t.Errorf("%d writes in an hour at rest", now-writes)
		}
		if n := w.table.looks() - lists; n > 60 {
			t.Errorf("%d looks at the table in an hour at rest, want at most 60", n)
		}
	})
}

func TestARestartChangesNothing(t *testing.T) {
	withFixture(t, func(w *fixture) {
		stop := w.start()
		for i := range 5 {
			w.servers.attach(fmt.Sprint("n", i), fmt.Sprintf("10.0.0.%d", i+2))
			w.join(fmt.Sprint("n", i), fmt.Sprintf("10.244.%d.0/24", i))
		}
		rest(10 * time.Second)
		stop()
		before := len(w.table.log()) + w.conditionWrites()
		defer w.start()()
		rest(5 * time.Minute)
		if after := len(w.table.log()) + w.conditionWrites(); after != before ||
			len(w.table.standing()) != 5 {
			t.Errorf("%d writes by the second controller, %d routes; want none and 5", after-before, len(w.table.standing()))
		}
	})
}

func TestAFullTableRefusesAndLetsTheNextIn(t *testing.T) {
	withFixture(t, func(w *fixture) {
		w.cfg.Limit, w.table.limit = 3, 3
		defer w.start()()
		for i := range 5 {
			w.servers.attach(fmt.Sprint("n", i), fmt.Sprintf("10.0.0.%d", i+2))
			w.join(fmt.Sprint("n", i), fmt.Sprintf("10.244.%d.0/24", i))
			rest(2 * time.Second)
		}
		for i, want := range []string{"False RouteCreated", "False RouteCreated", "False RouteCreated", "True RouteTableFull", "True RouteTableFull"} {
			w.expectCondition(fmt.Sprint("n", i), want)
		}
		if n := len(w.table.log()); n != 3 {
			t.Errorf("%d writes, want exactly the 3 that fit: %q", n, w.table.log())
		}
		if got, want := w.drainEvents(), []string{"Warning RouteTableFull", "Warning RouteTableFull", "Warning RouteTableNearlyFull"}; !slices.Equal(got, want) {
			t.Errorf("events %q, want %q", got, want)
		}

		w.leave("n0")
		w.servers.vanish("n0")
		rest(3 * time.Second)
		w.expectCondition("n3", "False RouteCreated") // it has waited longest
		w.expectCondition("n4", "True RouteTableFull")
	})
}

func TestTheTablesOwnLimitIsRemembered(t *testing.T) {
	withFixture(t, func(w *fixture) {
		w.table.limit = 2 // less than configured
		defer w.start()()
		for i := range 4 {
			w.servers.attach(fmt.Sprint("n", i), fmt.Sprintf("10.0.0.%d", i+2))
			w.join(fmt.Sprint("n", i), fmt.Sprintf("10.244.%d.0/24", i))
			rest(time.Second)
		}
		rest(20 * time.Second)
		w.expectCondition("n3", "True RouteTableFull")
		if n := len(w.table.log()); n != 3 {
			t.Errorf("%d writes, want 2 and the one that taught the limit: %q", n, w.table.log())
		}
	})
}

func TestForeignRoutesStay(t *testing.T) {
	withFixture(t, func(w *fixture) {
		w.table.routes = []routes.Route{
			{Dst: netip.MustParsePrefix("0.0.0.0/0"), Via: netip.MustParseAddr("10.0.0.9")},
			{Dst: netip.MustParsePrefix("10.244.7.0/24"), Via: netip.MustParseAddr("10.0.0.99")},
			// The server is unknown, and the route is not recorded.
			{Dst: netip.MustParsePrefix("10.244.9.0/24"), Via: netip.MustParseAddr("10.0.0.77")},
			{Dst: netip.MustParsePrefix("10.244.5.0/24"), Via: netip.MustParseAddr("10.0.0.4")}, // c's
		}
		w.wrote(entry("10.244.8.0/24", "10.0.0.77"))
		w.servers.now.strangers = []netip.Addr{netip.MustParseAddr("10.0.0.99"), netip.MustParseAddr("10.0.0.9")}
		w.servers.attach("a", "10.0.0.2")
		w.join("a", "10.244.7.0/24")
		w.servers.attach("b", "10.0.0.3")
		w.join("b", "10.244.6.0/24")
		w.servers.attach("c", "10.0.0.4")
		w.join("c", "10.244.5.0/24")
		defer w.start()()
		rest(10 * time.Minute)
		w.expectTable("0.0.0.0/0 via 10.0.0.9", "10.244.5.0/24 via 10.0.0.4", "10.244.6.0/24 via 10.0.0.3", "10.244.7.0/24 via 10.0.0.99", "10.244.9.0/24 via 10.0.0.77")
		w.expectCondition("a", "True NoRouteCreated")
		w.expectCondition("b", "False RouteCreated") // a default route conflicts with no podCIDR
		// One about the waiting Node, two about the table.
		if got, want := w.drainEvents(), []string{"Warning RouteAmbiguous", "Warning RouteAmbiguous", "Warning RouteAmbiguous"}; !slices.Equal(got, want) {
			t.Errorf("events %q, want %q", got, want)
		}
	})
}

func TestADeletedNodesRouteGoesAlthoughItsServerLivesOn(t *testing.T) {
	withFixture(t, func(w *fixture) {
		defer w.start()()
		w.servers.attach("a", "10.0.0.2")
		w.join("a", "10.244.1.0/24")
		rest(2 * time.Second)
		w.leave("a")
		rest(2 * time.Second)
		w.expectTable("")
	})
}

func TestADetachedNodeKeepsItsRoute(t *testing.T) {
	withFixture(t, func(w *fixture) {
		defer w.start()()
		w.servers.attach("a", "10.0.0.2")
		w.join("a", "10.244.1.0/24")
		rest(2 * time.Second)
		w.servers.detach("a")
		rest(10 * time.Minute)
		w.expectTable("10.244.1.0/24 via 10.0.0.2")
		w.expectCondition("a", "True NotAttached")

		w.servers.attach("a", "10.0.0.5") // attached again, with another address
		rest(10 * time.Minute)
		w.expectTable("10.244.1.0/24 via 10.0.0.5")
		w.expectCondition("a", "False RouteCreated")
		if got := w.table.log()[len(w.table.log())-1]; !strings.HasPrefix(got, "replace") {
			t.Errorf("the last write was %q, want one that touches only this route", got)
		}
	})
}

func TestANodeWhoseServerIsAttachedLateIsFoundSoon(t *testing.T) {
	withFixture(t, func(w *fixture) {
		defer w.start()()
		w.join("a", "10.244.1.0/24")
		rest(3 * time.Second)
		w.expectCondition("a", "True NotAttached")
		w.servers.attach("a", "10.0.0.2")
		rest(10 * time.Second)
		w.expectCondition("a", "False RouteCreated")
	})
}

func TestDeletionsAreCapped(t *testing.T) {
	withFixture(t, func(w *fixture) {
		for i := range 20 { // of deleted nodes and servers
			w.wrote(stale(i))
		}
		defer w.start()()
		rest(10 * time.Second)
		if n := len(w.table.log()); n != 5 {
			t.Errorf("%d deletions in the first pass, want a quarter of 20", n)
		}
		rest(30 * time.Minute)
		w.expectTable("")
	})
}

func TestFailuresAreRetriedWithoutWrongRoutes(t *testing.T) {
	for name, fail := range map[string]func(n int) (error, bool){
		"refused":       func(int) (error, bool) { return errBroken, false },
		"reply lost":    func(int) (error, bool) { return errBroken, true },
		"half and half": func(n int) (error, bool) { return errBroken, n%2 == 0 },
	} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(w *fixture) {
				writes := 0
				w.table.fail = func(string) (error, bool) {
					if writes++; writes%3 != 0 && writes < 30 {
						return fail(writes)
					}
					return nil, false
				}
				defer w.start()()
				for i := range 8 {
					w.servers.attach(fmt.Sprint("n", i), fmt.Sprintf("10.0.0.%d", i+2))
					w.join(fmt.Sprint("n", i), fmt.Sprintf("10.244.%d.0/24", i))
				}
				rest(15 * time.Minute)
				for i := range 8 {
					w.expectCondition(fmt.Sprint("n", i), "False RouteCreated")
				}
				if i := slices.IndexFunc(w.table.log(), func(s string) bool { return !strings.HasPrefix(s, "add ") }); i >= 0 {
					t.Errorf("a needless write: %q", w.table.log()[i])
				}
			})
		})
	}
}

func TestNothingIsDecidedOnFailedLooks(t *testing.T) {
	withFixture(t, func(w *fixture) {
		stop := w.start()
		w.servers.attach("a", "10.0.0.2")
		w.join("a", "10.244.1.0/24")
		rest(2 * time.Second)
		stop()
		writes := len(w.table.log()) + w.conditionWrites()
		w.table.listErr = errBroken
		stop = w.start()
		rest(5 * time.Minute)
		w.table.mu.Lock()
		w.table.listErr = nil
		w.table.mu.Unlock()
		w.servers.mu.Lock()
		w.servers.err, w.servers.requested = errBroken, time.Time{}
		w.servers.mu.Unlock()
		rest(5 * time.Minute)
		stop()
		w.expectTable("10.244.1.0/24 via 10.0.0.2")
		if now := len(w.table.log()) + w.conditionWrites(); now != writes {
			t.Errorf("%d writes without knowledge", now-writes)
		}
	})
}

// A route deleted by hand is restored without a change of the Node's condition, which changes only
// if that fails.
func TestAMissingRouteIsRestoredBeforeItIsReported(t *testing.T) {
	withFixture(t, func(w *fixture) {
		defer w.start()()
		w.servers.attach("a", "10.0.0.2")
		w.join("a", "10.244.1.0/24")
		rest(2 * time.Second)
		lose := func() {
			w.table.mu.Lock()
			defer w.table.mu.Unlock()
			w.table.routes = nil
		}
		reported := w.conditionWrites()
		lose()
		rest(2 * time.Minute)
		w.expectTable("10.244.1.0/24 via 10.0.0.2")
		if n := w.conditionWrites() - reported; n != 0 {
			t.Errorf("%d condition writes for a route that was restored at once", n)
		}

		w.table.mu.Lock()
		w.table.fail = func(string) (error, bool) { return errBroken, false }
		w.table.mu.Unlock()
		lose()
		rest(2 * time.Minute)
		w.expectCondition("a", "True NoRouteCreated")
	})
}

func TestIPv6NeitherReachesTheTableNorHoldsTheCondition(t *testing.T) {
	withFixture(t, func(w *fixture) {
		defer w.start()()
		w.servers.attach("six", "10.0.0.6")
		w.join("six", "fd00:6::/64")
		rest(2 * time.Second)
		w.expectTable("")
		w.expectCondition("six", "False RouteCreated")
	})
}

// A new control-plane node overtakes waiting nodes.
func TestAControlPlaneNodeOvertakes(t *testing.T) {
	withFixture(t, func(w *fixture) {
		w.joinMany(0, 10)
		defer w.start()()
		rest(400 * time.Millisecond)
		w.servers.attach("cp", "10.0.0.200")
		w.joinControlPlane("cp", "10.244.200.0/24")
		rest(10 * time.Second)
		synctest.Wait()
		if i := slices.Index(w.table.log(), "add 10.244.200.0/24 via 10.0.0.200"); i < 0 || i > 3 {
			t.Errorf("the control plane's route was write %d of %q", i, w.table.log())
		}
	})
}

// A former leader that hasn't noticed the change overwrites a Node's condition. Without a limit,
// both would overwrite it as fast as the API server replies.
func TestAnOverwrittenConditionIsNotWrittenAgainAtOnce(t *testing.T) {
	withFixture(t, func(w *fixture) {
		defer w.start()()
		w.join("a", "10.244.0.0/24")
		w.servers.attach("a", w.address(0))
		rest(time.Minute)
		w.expectCondition("a", "False RouteCreated")
		before := w.conditionWrites()
		for range 100 {
			node, err := w.client.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			_, err = kube.SetCondition(t.Context(), w.client, node, corev1.NodeCondition{
				Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue, Reason: "RouteTableFull",
			}, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			rest(30 * time.Millisecond)
		}
		if n := w.conditionWrites() - before - 100; n > 4 {
			t.Errorf("%d writes in three seconds against somebody else's, want one a second", n)
		}
		rest(2 * time.Second)
		w.expectCondition("a", "False RouteCreated")
	})
}
