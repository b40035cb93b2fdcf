package controller

import (
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// networkRoutes has the routes of a network, if known.
type networkRoutes struct {
	mu       sync.Mutex
	standing []netip.Prefix
	known    bool
}

func (n *networkRoutes) set(texts ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.standing, n.known = prefixes(texts...), true
}

func (n *networkRoutes) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known = false
}

func (n *networkRoutes) configure(c *Config) {
	c.Routes = func() ([]netip.Prefix, bool) {
		n.mu.Lock()
		defer n.mu.Unlock()
		return slices.Clone(n.standing), n.known
	}
}

func TestRoutedPrefixesAreNotAllocated(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api, routes := newFakeAPI(), &networkRoutes{}
		// A node prefix, a part of one, one that covers two, and two that block no Node of this
		// test.
		routes.set("10.0.0.0/24", "10.0.2.128/25", "10.0.4.0/23", "10.1.0.0/16", "192.168.0.0/16")
		p := start(t, api, dualStack(8), routes.configure)
		defer p.stop()
		pass(time.Second)
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			api.create(name)
			pass(2 * time.Second)
		}
		wantPodCIDRs(t, api, "a", "10.0.1.0/24", "fd00::/64")
		wantPodCIDRs(t, api, "b", "10.0.3.0/24", "fd00:0:0:1::/64")
		wantPodCIDRs(t, api, "c", "10.0.6.0/24", "fd00:0:0:2::/64")
		wantPodCIDRs(t, api, "d", "10.0.7.0/24", "fd00:0:0:3::/64")
		wantPodCIDRs(t, api, "e")
		p.wantMetric(t, rangesMetric, 4, "v4", "foreign")
		p.events.want(t, 3, ledgerName+" Warning PrefixRouted")
		if got := p.events.of(ledgerName + " Warning PrefixRouted The network has a route to 10.0.4.0/23"); len(got) != 1 || !strings.Contains(got[0], "remove the route") {
			t.Errorf("events %q, want one that names the route and the remedy", got)
		}
		// Routes to podCIDRs of Nodes are their own, and have no effect.
		routes.set("10.0.1.0/24", "10.0.0.0/24", "10.0.2.128/25", "10.0.4.0/23")
		pass(time.Minute)
		wantPodCIDRs(t, api, "e")
		p.events.want(t, 3, ledgerName+" Warning PrefixRouted")
		routes.set("10.0.1.0/24", "10.0.2.128/25", "10.0.4.0/23")
		pass(2 * quarantineLook)
		wantPodCIDRs(t, api, "e", "10.0.0.0/24", "fd00:0:0:4::/64")
		wantSound(t, api)
	})
}

// Before the first list the Nodes wait for it, up to a limit; afterwards the last list counts.
func TestRoutesThatAreNotKnown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api, routes := newFakeAPI(), &networkRoutes{}
		p := start(t, api, dualStack(8), routes.configure)
		defer p.stop()
		pass(time.Second)
		api.create("a")
		pass(routesPatience - 5*time.Second)
		wantPodCIDRs(t, api, "a")
		routes.set("10.0.0.0/24")
		pass(2 * time.Second)
		wantPodCIDRs(t, api, "a", "10.0.1.0/24", "fd00::/64")
		routes.forget()
		api.create("b")
		pass(time.Second)
		wantPodCIDRs(t, api, "b", "10.0.2.0/24", "fd00:0:0:1::/64")
		wantSound(t, api)
	})
	bubble(t, func(t *testing.T) {
		api, routes := newFakeAPI(), &networkRoutes{}
		p := start(t, api, dualStack(8), routes.configure)
		defer p.stop()
		pass(time.Second)
		api.create("a")
		pass(routesPatience + 2*time.Second)
		wantPodCIDRs(t, api, "a", "10.0.0.0/24", "fd00::/64")
		api.create("b")
		pass(time.Second)
		wantPodCIDRs(t, api, "b", "10.0.1.0/24", "fd00:0:0:1::/64")
		p.events.want(t, 0, "")
	})
}

// A machine that returns within its quarantine gets its prefix again, which is still routed to it.
func TestAMachineComesBackToARoutedPrefix(t *testing.T) {
	bubble(t, func(t *testing.T) {
		api, routes := newFakeAPI(), &networkRoutes{}
		routes.set()
		p := start(t, api, dualStack(8), routes.configure, quarantine(5*time.Minute))
		pass(time.Second)
		api.add("a", onMachine("cloud://1"))
		pass(time.Second)
		routes.set("10.0.0.0/24")
		api.delete("a")
		pass(time.Minute)
		p.stop()
		p = start(t, api, dualStack(8), routes.configure, quarantine(5*time.Minute), notFirst)
		defer p.stop()
		api.add("a", onMachine("cloud://1"))
		pass(2 * time.Second)
		wantPodCIDRs(t, api, "a", "10.0.0.0/24", "fd00::/64")
		p.events.want(t, 0, ledgerName)
		wantSound(t, api)
	})
}
