package controller

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/addresses"
)

// led runs a test with three nodes and one Service with an address that a provider routes.
func led(t *testing.T, test func(w *world, p *provider, holder string)) {
	t.Helper()
	inWorld(t, func(w *world) {
		p := &provider{
			leads: map[netip.Addr]string{}, flying: map[netip.Addr]bool{}, fails: map[string]error{},
		}
		for _, name := range []string{"a", "b", "c"} {
			w.node(name)
		}
		w.lead(p)
		w.service("one")
		w.after(time.Minute)
		holder := w.holder("one")
		if _, moves := p.reported(); moves != "192.0.2.1>underlay://"+holder {
			t.Fatalf("moved %q, held by %q", moves, holder)
		}
		test(w, p, holder)
	})
}

// lead starts a controller with a pool of a provider that limits moves.
func (w *world) lead(p *provider) {
	w.start(func(c *Config) {
		c.Pools = []Pool{poolNamed("failover", "192.0.2.1")}
		c.Pools[0].Mover = "failover"
		c.Routers = map[addresses.Mover]Routing{"failover": {Router: p, Scarce: true}}
	})
}

func (w *world) moved(p *provider, why string) {
	w.t.Helper()
	if _, moves := p.reported(); moves != "192.0.2.1>underlay://"+w.holder("one")+why {
		w.t.Errorf("moved %q, want it to go to %s %s", moves, w.holder("one"), why)
	}
}

func cordoned(n *corev1.Node) { n.Spec.Unschedulable = true }

func TestMovesOutOfADrainArePlanned(t *testing.T) {
	led(t, func(w *world, p *provider, holder string) {
		w.editNode(holder, cordoned)
		w.after(time.Minute)
		w.moved(p, "(planned)")
	})
}

func TestMovesFromAFailedNodeAreNotPlanned(t *testing.T) {
	led(t, func(w *world, p *provider, holder string) {
		w.editNode(holder, turned(corev1.ConditionFalse))
		w.after(time.Minute)
		w.moved(p, "")
	})
}

// A postponed planned move becomes urgent, and is attempted at once, when the node that the address
// is routed to fails.
func TestAPlannedMoveBecomesUrgent(t *testing.T) {
	led(t, func(w *world, p *provider, holder string) {
		p.set(func() { p.fails["planned"] = errors.New("no place in the quota") })
		w.editNode(holder, cordoned)
		w.after(10 * time.Minute)
		if _, moves := p.reported(); moves != "" {
			t.Fatalf("moved %q", moves)
		}
		w.editNode(holder, turned(corev1.ConditionFalse))
		w.settle()
		w.moved(p, "")
	})
}

// An address that was routed to another node by hand is routed back as a planned move: the other
// node serves it.
func TestAnAddressRoutedAwayIsRoutedBackAsPlanned(t *testing.T) {
	led(t, func(w *world, p *provider, holder string) {
		other := strings.Trim("abc", holder)[:1]
		p.set(func() { p.leads[netip.MustParseAddr("192.0.2.1")] = "underlay://" + other })
		w.after(6 * time.Minute)
		w.moved(p, "(planned)")
		p.set(func() { p.leads[netip.MustParseAddr("192.0.2.1")] = "elsewhere" })
		w.after(6 * time.Minute)
		w.moved(p, "")
	})
}

// The name of a Node that was deleted while no controller ran comes from the ledger, until the
// address is routed away from it.
func TestTheFormerHolderIsReported(t *testing.T) {
	led(t, func(w *world, p *provider, holder string) {
		w.kill()
		w.api.remove("nodes", holder)
		p.set(func() { p.fails["192.0.2.1"] = errors.New("away") })
		w.lead(p)
		w.after(10 * time.Minute)
		p.set(func() { delete(p.fails, "192.0.2.1") })
		w.after(time.Minute)
		w.moved(p, "(from "+holder+")")
		now := w.holder("one")
		p.set(func() { p.leads[netip.MustParseAddr("192.0.2.1")] = "underlay://" + holder })
		w.after(6 * time.Minute)
		w.moved(p, "")
		if now == holder || w.holder("one") != now {
			t.Errorf("%s holds it, then %s", now, w.holder("one"))
		}
	})
}

// Addresses are balanced over new nodes, unless the provider limits moves.
func TestNoScarceMoveForTheBalance(t *testing.T) {
	for scarce, want := range map[bool]int{false: 2, true: 0} {
		inWorld(t, func(w *world) {
			p := &provider{
				leads: map[netip.Addr]string{}, flying: map[netip.Addr]bool{}, fails: map[string]error{},
			}
			w.node("a")
			w.start(func(c *Config) {
				c.Pools = []Pool{poolNamed("failover", "192.0.2.1-192.0.2.4")}
				c.Pools[0].Mover = "failover"
				c.Routers = map[addresses.Mover]Routing{"failover": {Router: p, Scarce: scarce}}
			})
			for _, name := range []string{"one", "two", "three", "four"} {
				w.service(name)
			}
			w.after(time.Minute)
			p.reported()
			w.node("b")
			w.after(30 * time.Minute)
			if _, moves := p.reported(); strings.Count(moves, ">underlay://b(planned)") != want || strings.Count(moves, ">") != want {
				t.Errorf("scarce: %t: moved %q, want %d to b", scarce, moves, want)
			}
		})
	}
}
