package controller_test

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/routes"
)

// takeOver deletes a Node's server, and gives its address to a server without a Node.
func (w *fixture) takeOver(name, addr string) {
	w.servers.vanish(name)
	w.servers.change(func(p *project) { p.strangers = append(p.strangers, netip.MustParseAddr(addr)) })
}

// A route via a gateway that another server without a Node has taken over is deleted with its Node,
// also by a manager that did not write it.
func TestARouteGoesWithItsNodeAlthoughItsGatewayWasTakenOver(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		withFixture(t, func(w *fixture) {
			stop := w.start()
			w.servers.attach("a", "10.0.0.2")
			w.join("a", "10.244.1.0/24")
			w.servers.attach("b", "10.0.0.3")
			w.join("b", "10.244.2.0/24")
			rest(5 * time.Second)
			if restarted {
				stop()
			}
			w.takeOver("a", "10.0.0.2")
			if restarted {
				stop = w.start()
			}
			defer stop()
			rest(6 * time.Minute)
			w.expectTable("10.244.1.0/24 via 10.0.0.2", "10.244.2.0/24 via 10.0.0.3")
			w.leave("a")
			rest(time.Minute)
			w.expectTable("10.244.2.0/24 via 10.0.0.3")
		})
	}
}

// A Node that returns on another server with its podCIDR is routed, although another server has its
// old gateway by then.
func TestAReturnedNodeTakesItsRouteBackFromAStranger(t *testing.T) {
	withFixture(t, func(w *fixture) {
		defer w.start()()
		w.servers.attach("a", "10.0.0.2")
		w.join("a", "10.244.1.0/24")
		rest(5 * time.Second)
		w.takeOver("a", "10.0.0.2")
		w.servers.attach("a", "10.0.0.7")
		rest(6 * time.Minute)
		w.expectTable("10.244.1.0/24 via 10.0.0.7")
		w.expectCondition("a", "False RouteCreated")
	})
}

// A route that another controller wrote for a Node is adopted when it is first observed, and is
// deleted with the Node, even if another server has its gateway by then.
func TestAnAdoptedRouteGoesWithItsNode(t *testing.T) {
	withFixture(t, func(w *fixture) {
		w.servers.attach("a", "10.0.0.2")
		w.join("a", "10.244.1.0/24")
		w.servers.attach("b", "10.0.0.3")
		w.join("b", "10.244.2.0/24")
		w.table.routes = []routes.Route{entry("10.244.1.0/24", "10.0.0.2"), entry("10.244.2.0/24", "10.0.0.3")}
		stop := w.start()
		rest(5 * time.Second)
		stop()
		w.takeOver("a", "10.0.0.2")
		w.leave("a")
		defer w.start()()
		rest(5 * time.Minute)
		w.expectTable("10.244.2.0/24 via 10.0.0.3")
	})
}

// A route in the cluster's range that is neither recorded nor adopted is another cluster's, also
// while its server is detached and its gateway is unknown.
func TestANeighborsRouteStaysWhileItsServerIsDetached(t *testing.T) {
	withFixture(t, func(a *fixture) {
		b := a.neighbor("10.244.0.0/16")
		a.servers.attach("a1", "10.0.0.2")
		a.join("a1", "10.244.1.0/24")
		defer a.start()()
		rest(5 * time.Second)
		b.servers.attach("b1", "10.0.0.3")
		b.join("b1", "10.244.7.0/24")
		defer b.start()()
		rest(5 * time.Second)
		b.servers.detach("b1")
		rest(time.Hour)
		a.expectTable("10.244.1.0/24 via 10.0.0.2", "10.244.7.0/24 via 10.0.0.3")
	})
}

// A cluster that reached the limit once tries again later, one route at a time: a temporary limit
// of the cloud must not block Nodes forever.
func TestATaughtLimitExpires(t *testing.T) {
	withFixture(t, func(w *fixture) {
		full := false
		w.table.fail = func(string) (error, bool) {
			if full {
				return routes.ErrFull, false
			}
			return nil, false
		}
		w.joinMany(0, 5)
		defer w.start()()
		rest(time.Minute)
		w.table.mu.Lock()
		full = true
		w.table.mu.Unlock()
		w.joinMany(5, 10)
		rest(20 * time.Second)
		for i := range 10 {
			w.expectCondition(nodeName(5+i), "True RouteTableFull")
		}
		w.table.mu.Lock()
		full = false
		w.table.mu.Unlock()
		rest(5 * time.Minute)
		for i := range 15 {
			w.expectCondition(nodeName(i), "False RouteCreated")
		}
	})
}

// While the table stays full, there are few attempts in a day, one addition each.
func TestAFullTableIsTriedSeldom(t *testing.T) {
	withFixture(t, func(w *fixture) {
		w.table.limit = 5 // less than configured
		w.joinMany(0, 15)
		defer w.start()()
		rest(5 * time.Minute)
		writes, looks := len(w.table.log()), w.table.looks()
		rest(24 * time.Hour)
		tries := len(w.table.log()) - writes
		if tries == 0 || tries > 100 {
			t.Errorf("%d additions were tried in a day, want some and at most 100", tries)
		}
		if n := w.table.looks() - looks - 24*60; n > 3*tries {
			t.Errorf("%d looks for %d tries", n, tries)
		}
		w.table.mu.Lock()
		w.table.limit = 100
		w.table.mu.Unlock()
		rest(20 * time.Minute)
		for i := range 15 {
			w.expectCondition(nodeName(i), "False RouteCreated")
		}
	})
}

// registerAnewMeanwhile lets a register again, some time after the last list of its route, while
// the route of b is being written.
func registerAnewMeanwhile(w *fixture, byHand bool) {
	w.servers.attach("a", "10.0.0.2")
	w.join("a", "10.244.1.0/24")
	w.servers.attach("b", "10.0.0.3")
	rest(61 * time.Second)
	w.join("b", "10.244.2.0/24")
	rest(100 * time.Millisecond)
	if byHand {
		w.table.mu.Lock()
		w.table.routes = nil
		w.table.mu.Unlock()
	}
	w.leave("a")
	w.registerAnew("a", "10.244.1.0/24")
}

// A Node that registers again counts as reachable only after a list that is newer than the Node
// contains its route, or after the route was written for it.
func TestANodeThatRegistersAnewIsReachableOnlyByALookAtItsRoute(t *testing.T) {
	withFixture(t, func(w *fixture) {
		defer w.start()()
		registerAnewMeanwhile(w, true)
		for range 100 {
			rest(100 * time.Millisecond)
			if w.condition("a") == "False RouteCreated" && !slices.Contains(w.table.standing(), entry("10.244.1.0/24", "10.0.0.2")) {
				t.Fatal("the Node is called reachable without a route")
			}
		}
		w.expectTable("10.244.1.0/24 via 10.0.0.2", "10.244.2.0/24 via 10.0.0.3")
		w.expectCondition("a", "False RouteCreated")
	})
}

// A write from before a Node registered proves nothing about the Node, however late its reply
// arrives.
func TestALateReplyProvesNothingAboutANewerNode(t *testing.T) {
	withFixture(t, func(w *fixture) {
		defer w.start()()
		rest(time.Second)
		w.servers.attach("a", "10.0.0.2")
		w.table.answered = func(string) {
			w.table.answered = nil
			w.table.mu.Lock()
			w.table.routes = nil // by hand
			w.table.mu.Unlock()
			w.leave("a")
			w.registerAnew("a", "10.244.1.0/24")
			time.Sleep(20 * time.Second)
		}
		w.join("a", "10.244.1.0/24")
		for range 100 {
			rest(250 * time.Millisecond)
			if w.condition("a") == "False RouteCreated" && !slices.Contains(w.table.standing(), entry("10.244.1.0/24", "10.0.0.2")) {
				t.Fatal("the Node is called reachable without a route")
			}
		}
		w.expectTable("10.244.1.0/24 via 10.0.0.2")
		w.expectCondition("a", "False RouteCreated")
	})
}

// A Node that registers again while its route exists waits for one list only.
func TestANodeThatRegistersAnewCostsOneLook(t *testing.T) {
	withFixture(t, func(w *fixture) {
		defer w.start()()
		registerAnewMeanwhile(w, false)
		looks := w.table.looks()
		rest(2 * time.Second)
		w.expectCondition("a", "False RouteCreated")
		if n := w.table.looks() - looks; n != 1 {
			t.Errorf("%d looks at the table, want 1", n)
		}
		if n := len(w.table.log()); n != 2 {
			t.Errorf("writes %q, want one for each Node", w.table.log())
		}
	})
}

// A deletion without a response may take effect when its Node is back. The Node is reachable only
// by a list from after that.
func TestADeletionThatTakesEffectLateIsNotOverlooked(t *testing.T) {
	withFixture(t, func(w *fixture) {
		w.joinMany(0, 1)
		defer w.start()()
		rest(time.Minute)
		lost := false
		w.table.mu.Lock()
		w.table.fail = func(write string) (error, bool) {
			if lost || !strings.HasPrefix(write, "delete") {
				return nil, false
			}
			lost = true
			time.AfterFunc(5*time.Second, func() {
				w.table.mu.Lock()
				defer w.table.mu.Unlock()
				w.table.routes = nil
			})
			return errBroken, false
		}
		w.table.mu.Unlock()
		w.leave(nodeName(0))
		rest(time.Second)
		w.registerAnew(nodeName(0), w.podCIDR(0))
		for range 100 {
			rest(250 * time.Millisecond)
			if w.condition(nodeName(0)) == "False RouteCreated" && len(w.table.standing()) == 0 {
				t.Fatal("the Node is called reachable without a route")
			}
		}
		w.expectTable("10.244.0.0/24 via 10.0.0.2")
		w.expectCondition(nodeName(0), "False RouteCreated")
	})
}

// A process that another one has replaced as the leader, or that can't read the lease, deletes
// nothing, and adds routes.
func TestOnlyTheLeaderDeletes(t *testing.T) {
	withFixture(t, func(w *fixture) {
		var lost atomic.Bool
		w.cfg.Leading = func(context.Context) error {
			if lost.Load() {
				return errBroken
			}
			return nil
		}
		w.joinMany(0, 1)
		defer w.start()()
		rest(time.Minute)
		lost.Store(true)
		w.leave(nodeName(0))
		w.joinMany(1, 1)
		rest(10 * time.Minute)
		w.expectTable("10.244.0.0/24 via 10.0.0.2", "10.244.1.0/24 via 10.0.0.3")
		w.expectCondition(nodeName(1), "False RouteCreated")
		lost.Store(false)
		rest(2 * time.Minute)
		w.expectTable("10.244.1.0/24 via 10.0.0.3")
	})
}
