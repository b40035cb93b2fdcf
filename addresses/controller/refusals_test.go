package controller

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/addresses"
)

var (
	aboutAddress = &addresses.Unrouted{About: addresses.AboutAddress, Err: errors.New("a stranger has it")}
	aboutNode    = &addresses.Unrouted{About: addresses.AboutNode, Err: errors.New("the server is locked")}
	errToken     = errors.New("the token may not write")
)

// Robot limits reads: an address that the provider refuses for every node is retried only after a
// read. At rest there are twelve reads an hour, with any number of such addresses.
func TestLastingRejectionsAreRetriedAfterReads(t *testing.T) {
	routed(t, func(p *provider, want func(map[string]string), events *[]string) {
		p.takes = 0
		p.fails[a1], p.fails[a2] = aboutAddress, aboutAddress
		want(map[string]string{a1: "x", a2: "x", a3: "x"})
		time.Sleep(time.Minute)
		p.reported()
		p.set(func() { p.tried = nil })
		time.Sleep(time.Hour)
		if request, _ := p.reported(); request > 12 || len(p.tried) > 2*request {
			t.Errorf("asked %d times in an hour, tried %d times", request, len(p.tried))
		}
		p.set(func() { delete(p.fails, a1) }) // the user accepted it
		time.Sleep(5*time.Minute + time.Second)
		if _, moves := p.reported(); moves != a1+">x" || len(*events) != 2 {
			t.Errorf("moved %q, told %q", moves, *events)
		}
	})
}

// A change of other nodes doesn't repeat a request that is refused or waits for its retry.
func TestARefusedRequestIsNotRepeatedForOtherNodes(t *testing.T) {
	for name, cause := range map[string]error{"stays": aboutAddress, "fails": errToken} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &provider{
					leads: map[netip.Addr]string{}, flying: map[netip.Addr]bool{},
					fails: map[string]error{a1: cause},
				}
				r, stop := runRouting(t, p, func(addresses.Mover, netip.Addr, destination, error) {})
				for i := range 40 {
					serving := map[string]bool{"x": true, fmt.Sprint("y", i): true}
					r.set(map[netip.Addr]destination{netip.MustParseAddr(a1): {providerID: "x", node: "x", serving: serving}})
					time.Sleep(time.Second)
				}
				stop()
				if len(p.tried) == 0 || len(p.tried) > 7 {
					t.Errorf("tried %d times in 40 s", len(p.tried))
				}
			})
		})
	}
}

// Two Nodes in a row are deleted before the address is known to be routed to the second one: the
// provider routes it to either of them.
func TestFormerHoldersThatMayHaveTheRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &provider{
			leads: map[netip.Addr]string{}, flying: map[netip.Addr]bool{},
			fails: map[string]error{a1: errToken},
		}
		r, stop := runRouting(t, p, func(addresses.Mover, netip.Addr, destination, error) {})
		move := func(to string, former ...string) {
			r.set(map[netip.Addr]destination{
				netip.MustParseAddr(a1): {providerID: to, node: to, former: former},
			})
			time.Sleep(time.Second)
		}
		move("b", "a")
		move("c", "b")
		move("c")
		p.set(func() { clear(p.fails) })
		time.Sleep(time.Minute)
		p.set(func() { p.takes = time.Minute })
		move("d", "c")
		move("e", "d") // while it is routed to d
		time.Sleep(3 * time.Minute)
		if _, moves := p.reported(); moves != a1+">c(from a b) "+a1+">d(from c) "+a1+">e(from d)" {
			t.Errorf("moved %q", moves)
		}
		stop()
	})
}

// Pending retries must not cause frequent requests to an unreachable provider.
func TestAnUnreachableProviderGetsFewRequests(t *testing.T) {
	for name, cause := range map[string]error{"stays": aboutAddress, "fails": errToken} {
		t.Run(name, func(t *testing.T) {
			routed(t, func(p *provider, want func(map[string]string), _ *[]string) {
				p.takes = 0
				p.fails[a1] = cause
				want(map[string]string{a1: "x"})
				time.Sleep(4 * time.Minute)
				p.reported()
				p.set(func() { p.fails[""] = errors.New("away") })
				time.Sleep(30 * time.Minute)
				if request, _ := p.reported(); request > 40 {
					t.Errorf("asked %d times in half an hour", request)
				}
			})
		})
	}
}

func underlay(node string) string { return "underlay://" + node }

// answering makes the agents report that they hold the address.
func (w *world) answering(nodes ...string) {
	for _, n := range nodes {
		w.report(n, addresses.Report{Held: []addresses.Hold{{Address: netip.MustParseAddr("192.0.2.1"), Epoch: 1}}})
	}
}

// If the provider refuses a node, another one gets the address without delay.
func TestANodeThatTheProviderRefuses(t *testing.T) {
	led(t, func(w *world, p *provider, holder string) {
		w.answering("a", "b", "c")
		w.settle()
		p.takes = time.Second
		w.editNode(holder, turned(corev1.ConditionFalse))
		w.settle()
		first := w.holder("one")
		p.set(func() { p.fails[underlay(first)] = aboutNode })
		w.after(3 * time.Second)
		second := w.holder("one")
		if second == first || second == holder {
			t.Fatalf("%s failed, %s is refused, and %s holds it", holder, first, second)
		}
		w.moved(p, "")
		w.after(time.Hour)
		if _, moves := p.reported(); moves != "" || w.holder("one") != second {
			t.Errorf("moved %q then, to %s", moves, w.holder("one"))
		}
	})
}

// If the provider refuses all other nodes, an address returns to the draining one that still has
// the route; and if that one fails, a refused node is better than none.
func TestTheProviderRefusesAllOtherNodes(t *testing.T) {
	led(t, func(w *world, p *provider, holder string) {
		p.set(func() {
			for _, n := range []string{"a", "b", "c"} {
				p.fails[underlay(n)] = aboutNode
			}
		})
		w.editNode(holder, cordoned)
		w.after(time.Minute)
		if now := w.holder("one"); now != holder {
			t.Errorf("%s drains, can hold it and has it; the ledger says %s", holder, now)
		}
		p.set(func() { clear(p.fails) })
		w.editNode(holder, turned(corev1.ConditionFalse))
		w.after(time.Minute)
		if now := w.holder("one"); now == holder {
			t.Error("it stays where nobody serves it")
		}
		w.moved(p, "")
	})
}

// A refusal that doesn't concern the node moves no address: the next node would be refused too.
func TestATokenThatMayNotWriteMovesNothing(t *testing.T) {
	for _, cause := range []error{errToken, aboutAddress} {
		led(t, func(w *world, p *provider, holder string) {
			p.set(func() { p.fails["192.0.2.1"] = cause })
			w.editNode(holder, cordoned)
			w.settle()
			now := w.holder("one")
			w.after(time.Hour)
			if moves := w.events.of("one Normal " + reasonMoved); len(moves) != 1 || w.holder("one") != now {
				t.Errorf("%v: %d moves, from %s to %s: %q", cause, len(moves), holder, w.holder("one"), moves)
			}
		})
	}
}

// With any number of refused nodes, an address does not move through all of them; but refused ones
// are retried from time to time.
func TestRefusedEverywhereDoesNotWander(t *testing.T) {
	for _, nodes := range []int{2, 3, 4, 26} {
		t.Run(fmt.Sprint(nodes, " nodes"), func(t *testing.T) {
			inWorld(t, func(w *world) {
				p := &provider{
					leads: map[netip.Addr]string{}, flying: map[netip.Addr]bool{}, fails: map[string]error{},
				}
				for _, name := range strings.Split("abcdefghijklmnopqrstuvwxyz", "")[:nodes] {
					w.node(name)
					p.fails[underlay(name)] = aboutNode
				}
				w.lead(p)
				w.service("one")
				moves := func() int { return len(w.events.of("one Normal " + reasonMoved)) }
				w.after(time.Hour - time.Minute)
				first := moves()
				if first >= believed {
					t.Errorf("%d moves within an hour", first)
				}
				w.after(30 * time.Minute)
				if more := moves() - first; more == 0 || more > believed {
					t.Errorf("%d moves within the next half hour", more)
				}
				p.reported()
				p.set(func() { clear(p.fails) })
				w.after(2 * time.Minute)
				w.moved(p, "")
			})
		})
	}
}

// A provider that refuses one address everywhere does not stop the balancing of others.
func TestARefusedAddressDoesNotKeepOthersFromBalance(t *testing.T) {
	inWorld(t, func(w *world) {
		p := &provider{
			leads: map[netip.Addr]string{}, flying: map[netip.Addr]bool{}, fails: map[string]error{},
		}
		for _, name := range []string{"a", "b", "c"} {
			p.fails[underlay(name)] = aboutNode
		}
		w.node("a")
		w.node("b")
		w.start(func(c *Config) {
			c.Pools = []Pool{poolNamed("failover", "192.0.2.1"), poolNamed("segment", "192.0.2.2-192.0.2.9")}
			c.Pools[0].Mover = "failover"
			c.Routers = map[addresses.Mover]Routing{"failover": {Router: p, Scarce: true}}
		})
		for i := range 9 {
			w.service(fmt.Sprint("service", i))
		}
		w.after(10 * time.Minute)
		w.node("c")
		w.after(time.Hour)
		held := 0
		for _, e := range w.api.ledger().Entries() {
			if e.Holder == "c" {
				held++
			}
		}
		if held < 2 {
			t.Errorf("a node that came an hour ago holds %d of 9 addresses", held)
		}
	})
}

// While a provider rejects requests, no address is moved for balance: otherwise ledger and routes
// would diverge.
func TestNoBalanceWhileTheProviderRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		fails map[string]error
		takes time.Duration
		want  int
	}{
		"a token without permission": {map[string]error{"planned": errToken}, 0, 1},
		"no answer":                  {nil, time.Hour, 1},
		"away":                       {map[string]error{"": errors.New("away")}, 0, 0},
		"one that stays":             {map[string]error{"192.0.2.9": aboutAddress}, 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				p := &provider{
					leads: map[netip.Addr]string{}, flying: map[netip.Addr]bool{}, fails: map[string]error{},
				}
				w.node("a")
				w.start(func(c *Config) {
					c.Pools = []Pool{poolNamed("floating", "192.0.2.1-192.0.2.4")}
					c.Pools[0].Mover = "floating"
					c.Routers = map[addresses.Mover]Routing{"floating": {Router: p}}
				})
				for _, name := range []string{"one", "two", "three", "four"} {
					w.service(name)
				}
				w.after(time.Minute)
				p.set(func() {
					p.takes = c.takes
					for key, err := range c.fails {
						p.fails[key] = err
					}
				})
				w.after(6 * time.Minute) // so that an unreachable provider got a request
				w.node("b")
				w.after(30 * time.Minute)
				moved := 0
				for _, e := range w.api.ledger().Entries() {
					if e.Holder == "b" {
						moved++
					}
				}
				if moved != c.want {
					t.Errorf("%d addresses moved to b, want %d", moved, c.want)
				}
			})
		})
	}
}

func TestSteady(t *testing.T) {
	address := netip.MustParseAddr(a1)
	for _, c := range []struct {
		known  bool
		astray map[string]bool // misrouted addresses; true: the provider refuses every node
		steady bool
	}{
		{false, nil, false},
		{true, nil, true},
		{true, map[string]bool{a1: true}, false},
		{true, map[string]bool{a2: true, a3: true}, true},
		{true, map[string]bool{a2: true, a3: false}, false},
	} {
		r := &routing{
			known: c.known, wanted: map[netip.Addr]destination{}, routes: map[netip.Addr]string{},
			failures: map[netip.Addr]failure{},
		}
		for _, text := range []string{a1, a2, a3} {
			a := netip.MustParseAddr(text)
			r.wanted[a], r.routes[a] = destination{providerID: "x"}, "x"
			if stays, astray := c.astray[text]; astray {
				r.routes[a], r.failures[a] = "y", failure{stays: stays}
			}
		}
		if r.steady()(address) != c.steady {
			t.Errorf("%+v: steady is %t", c, !c.steady)
		}
	}
}
