package controller_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/routes"
)

// Even with lists of servers that take longer than a lease, routes of Nodes that left are deleted,
// and Nodes that joined get the room.
func TestASlowServerListDelaysDeletionsAndPreventsNone(t *testing.T) {
	for _, c := range []struct{ lease, takes time.Duration }{
		{15 * time.Second, 5 * time.Second},
		{15 * time.Second, 8 * time.Second},
		{15 * time.Second, 3 * time.Minute},
		{6 * time.Second, 3500 * time.Millisecond},
	} {
		t.Run(fmt.Sprintf("%s of a lease of %s", c.takes, c.lease), func(t *testing.T) {
			withFixture(t, func(w *fixture) {
				w.cfg.Limit, w.table.limit, w.cfg.MaxDeletions = 10, 10, 100
				w.cfg.Lease, w.servers.takes = c.lease, c.takes
				defer w.start()()
				w.joinMany(0, 10)
				rest(time.Minute)
				for i := range 5 {
					w.leave(nodeName(i))
					w.servers.vanish(nodeName(i))
				}
				w.joinMany(10, 5)
				rest(15 * time.Minute)
				for i := 10; i < 15; i++ {
					w.expectCondition(nodeName(i), "False RouteCreated")
				}
				lists := w.servers.listed()
				rest(6 * time.Hour)
				if n := w.servers.listed() - lists; n > 6*12 {
					t.Errorf("%d server lists in six hours at rest", n)
				}
			})
		})
	}
}

// A table with lists or writes that take longer than half a lease keeps its routes, until they are
// fast again.
func TestDeletionsThatComeTooLateAreNotSent(t *testing.T) {
	for name, slow := range map[string]func(*table, time.Duration){
		"lists":  func(t *table, d time.Duration) { t.listTakes = d },
		"writes": func(t *table, d time.Duration) { t.writeTakes = d },
	} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, func(w *fixture) {
				set := func(d time.Duration) {
					w.table.mu.Lock()
					defer w.table.mu.Unlock()
					slow(w.table, d)
				}
				defer w.start()()
				w.joinMany(0, 3)
				rest(time.Minute)
				set(8 * time.Second)
				w.leave(nodeName(0))
				w.servers.vanish(nodeName(0))
				rest(time.Hour)
				if n := len(w.table.standing()); n != 3 {
					t.Errorf("%d routes stand, want all 3", n)
				}
				set(0)
				rest(10 * time.Minute)
				if n := len(w.table.standing()); n != 2 {
					t.Errorf("%d routes stand, want 2", n)
				}
			})
		})
	}
}

// Only routes that existed before the servers were listed are deleted or replaced: after a failed
// write the table is listed again, and a route in it may be newer than the list of servers, and
// right.
func TestAServerListOlderThanTheRouteReplacesNothing(t *testing.T) {
	withFixture(t, func(w *fixture) {
		w.cfg.MaxDeletions = 100
		w.servers.attach("a", "10.0.0.2")
		w.join("a", "10.244.1.0/24")
		before, after := entry("10.244.1.0/24", "10.0.0.2"), entry("10.244.1.0/24", "10.0.0.5")
		w.wrote(before, after, stale(7), stale(8)) // a's server had the other address once
		w.table.routes = []routes.Route{before, stale(7), stale(8)}
		moved := false
		w.table.fail = func(write string) (error, bool) {
			if moved || !strings.HasPrefix(write, "delete") {
				return nil, false
			}
			moved = true // and another manager replaces the route
			w.servers.attach("a", "10.0.0.5")
			w.table.routes[slices.Index(w.table.routes, before)] = after
			return errBroken, false
		}
		defer w.start()()
		rest(10 * time.Minute)
		w.expectTable(after.String())
		replaces := func(write string) bool { return strings.HasPrefix(write, "replace") }
		if slices.ContainsFunc(w.table.log(), replaces) {
			t.Errorf("the right route was written over: %q", w.table.log())
		}
	})
}

// The last list of the table is the first of the two that are required: a deletion takes one list
// of servers and one of the table.
func TestRequestsOfADeletion(t *testing.T) {
	withFixture(t, func(w *fixture) {
		defer w.start()()
		w.joinMany(0, 3)
		rest(90 * time.Second)
		looks, lists := w.table.looks(), w.servers.listed()
		w.leave(nodeName(0))
		rest(2 * time.Second)
		w.expectTable("10.244.1.0/24 via 10.0.0.3", "10.244.2.0/24 via 10.0.0.4")
		if a, b := w.table.looks()-looks, w.servers.listed()-lists; a != 1 || b != 1 {
			t.Errorf("%d lists of the table, %d of the servers; want one of each", a, b)
		}
	})
}

// A Node that waits forever for its server, such as a dedicated one without a pool, neither makes
// other Nodes' joining take more lists, nor repeats the decision about all Nodes.
func TestANodeThatWaitsForEverCostsOthersNothing(t *testing.T) {
	lists, decisions := map[bool]int{}, map[bool]int{}
	for _, waits := range []bool{false, true} {
		withFixture(t, func(w *fixture) {
			defer w.start()()
			w.joinMany(0, 20)
			if waits {
				w.join("dedicated", "10.244.200.0/24")
			}
			rest(3 * time.Hour)
			before, decided := w.servers.listed(), w.servers.callCount()
			for i := range 60 { // one joins and another leaves each minute
				w.join(nodeName(20+i), w.podCIDR(20+i))
				rest(10 * time.Second)
				w.servers.attach(nodeName(20+i), w.address(20+i))
				w.leave(nodeName(i))
				w.servers.vanish(nodeName(i))
				rest(50 * time.Second)
				w.expectCondition(nodeName(20+i), "False RouteCreated")
			}
			lists[waits], decisions[waits] = w.servers.listed()-before, w.servers.callCount()-decided
		})
	}
	t.Logf("60 Nodes join and 60 leave: %d lists and %d decisions, %d and %d while one waits",
		lists[false], decisions[false], lists[true], decisions[true])
	if lists[true] > lists[false]+60/5+1 {
		t.Errorf("%d lists, %d while one waits; want its own, one in five minutes, besides",
			lists[false], lists[true])
	}
	if decisions[true] > decisions[false]+60 {
		t.Errorf("%d decisions, %d while one waits; want none besides that it waits for",
			decisions[false], decisions[true])
	}
}

// Nodes that wait forever, because the network accepts no more servers, come to wait together and
// share one list.
func TestManyThatWaitForEverShareTheirLists(t *testing.T) {
	withFixture(t, func(w *fixture) {
		defer w.start()()
		for i := range 50 {
			w.join(nodeName(i), w.podCIDR(i))
			w.servers.vanish(nodeName(i))
			rest(7 * time.Second)
		}
		rest(3 * time.Hour)
		before := w.servers.listed()
		rest(time.Hour)
		if n := w.servers.listed() - before; n > 20 {
			t.Errorf("%d lists of servers in an hour for 50 Nodes that wait, want one in five minutes", n)
		}
	})
}
