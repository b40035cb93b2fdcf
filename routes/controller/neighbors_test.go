package controller_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/routes"
)

func ranges(prefix string) []routes.Range {
	return []routes.Range{{Prefix: netip.MustParsePrefix(prefix), NodeBits: 24}}
}

// neighbor is another cluster on the same network, with its own API server and Nodes and the same
// table. Each cluster's servers are unknown targets to the other.
func (w *fixture) neighbor(prefix string) *fixture {
	other := *w
	other.client, other.cfg.Ranges = w.apiServer(), ranges(prefix)
	other.servers = &servers{now: w.servers.now.clone()}
	other.servers.now.of, other.servers.now.strangers = map[string]netip.Addr{}, nil
	return &other
}

// meet adds each cluster's servers to the other's list as unknown targets.
func meet(a, b *fixture) {
	strangers := func(of *servers) []netip.Addr {
		of.mu.Lock()
		defer of.mu.Unlock()
		var out []netip.Addr
		for _, addr := range of.now.of {
			out = append(out, addr)
		}
		return out
	}
	ofA, ofB := strangers(a.servers), strangers(b.servers)
	a.servers.change(func(p *project) { p.strangers = ofB })
	b.servers.change(func(p *project) { p.strangers = ofA })
}

func TestTwoClustersWithDisjointRanges(t *testing.T) {
	withFixture(t, func(a *fixture) {
		b := a.neighbor("10.245.0.0/16")
		a.servers.attach("a1", "10.0.0.2")
		a.join("a1", "10.244.1.0/24")
		b.servers.attach("b1", "10.0.0.3")
		b.join("b1", "10.245.1.0/24")
		meet(a, b)
		defer a.start()()
		defer b.start()()
		rest(10 * time.Minute)
		a.expectTable("10.244.1.0/24 via 10.0.0.2", "10.245.1.0/24 via 10.0.0.3")
		a.leave("a1")
		rest(10 * time.Minute)
		a.expectTable("10.245.1.0/24 via 10.0.0.3")
		b.expectCondition("b1", "False RouteCreated")
		if events := a.drainEvents(); len(events) > 0 {
			t.Errorf("they see each other: %q", events)
		}
	})
}

// A cluster that has another one's range ends, and writes nothing.
func TestTwoClustersWithTheSameRange(t *testing.T) {
	withFixture(t, func(a *fixture) {
		a.servers.attach("a1", "10.0.0.2")
		a.join("a1", "10.244.1.0/24")
		stop := a.start()
		rest(time.Minute)
		stop()
		b := a.neighbor("10.244.0.0/16")
		b.servers.attach("b1", "10.0.0.3")
		b.join("b1", "10.244.7.0/24")
		meet(a, b)
		err := b.runUntilItEnds(time.Minute)
		if err == nil || !strings.Contains(err.Error(), "--cluster-cidr 10.244.0.0/16") || !strings.Contains(err.Error(), "another cluster") {
			t.Errorf("it ended with %v, want an error that names the range and the other cluster", err)
		}
		b.expectTable("10.244.1.0/24 via 10.0.0.2")
		b.expectCondition("b1", "True NoRouteCreated")
	})
}

// Two clusters that detect later that they have the same range delete no routes of each other.
func TestTwoClustersThatMeetLater(t *testing.T) {
	withFixture(t, func(a *fixture) {
		b := a.neighbor("10.244.0.0/16")
		defer a.start()()
		defer b.start()()
		a.servers.attach("a1", "10.0.0.2")
		a.join("a1", "10.244.1.0/24")
		b.servers.attach("b1", "10.0.0.3")
		b.join("b1", "10.244.7.0/24")
		meet(a, b)
		rest(time.Minute)
		b.servers.attach("b2", "10.0.0.4")
		b.join("b2", "10.244.1.0/24") // a1's podCIDR
		meet(a, b)
		rest(time.Hour)
		a.expectTable("10.244.1.0/24 via 10.0.0.2", "10.244.7.0/24 via 10.0.0.3")
		b.expectCondition("b2", "True NoRouteCreated")
		a.expectCondition("a1", "False RouteCreated")
		if i := indexPrefix(a.table.log(), "delete"); i >= 0 {
			t.Errorf("something was deleted: %q", a.table.log())
		}
	})
}

func indexPrefix(log []string, prefix string) int {
	for i, line := range log {
		if strings.HasPrefix(line, prefix) {
			return i
		}
	}
	return -1
}

// A route via another address of the Node's server is right, and is kept.
func TestARouteViaAnAliasStays(t *testing.T) {
	withFixture(t, func(w *fixture) {
		w.servers.attach("a", "10.0.0.2")
		w.servers.change(func(p *project) { p.aliases = map[string][]netip.Addr{"a": {netip.MustParseAddr("10.0.0.20")}} })
		w.join("a", "10.244.1.0/24")
		w.table.routes = []routes.Route{entry("10.244.1.0/24", "10.0.0.20")}
		defer w.start()()
		rest(10 * time.Minute)
		w.expectTable("10.244.1.0/24 via 10.0.0.20")
		w.expectCondition("a", "False RouteCreated")
	})
}

// With every combination of families, only IPv4 podCIDRs become routes, and no other podCIDR delays
// the condition.
func TestFamilies(t *testing.T) {
	for _, c := range []struct {
		name  string
		cidrs []string
		want  string
	}{
		{"IPv4 only", []string{"10.244.1.0/24"}, "10.244.1.0/24 via 10.0.0.2"},
		{"IPv6 only", []string{"fd00:1::/64"}, ""},
		{"IPv4 first", []string{"10.244.1.0/24", "fd00:1::/64"}, "10.244.1.0/24 via 10.0.0.2"},
		{"IPv6 first", []string{"fd00:1::/64", "10.244.1.0/24"}, "10.244.1.0/24 via 10.0.0.2"},
		{"IPv4 in IPv6 notation", []string{"::ffff:10.244.1.0/120", "fd00:1::/64"}, "10.244.1.0/24 via 10.0.0.2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			withFixture(t, func(w *fixture) {
				defer w.start()()
				w.servers.attach("a", "10.0.0.2")
				w.joinWith("a", c.cidrs...)
				rest(5 * time.Second)
				w.expectTable(c.want)
				w.expectCondition("a", "False RouteCreated")
			})
		})
	}
}

// Pools, draining ones too, are ranges; a new one takes effect at the next start and changes no
// existing route.
func TestARangeIsAdded(t *testing.T) {
	withFixture(t, func(w *fixture) {
		stop := w.start()
		w.servers.attach("a", "10.0.0.2")
		w.join("a", "10.244.1.0/24")
		w.servers.attach("b", "10.0.0.3")
		w.join("b", "10.200.0.64/26")
		rest(time.Minute)
		w.expectCondition("b", "True NoRouteCreated")
		stop()
		w.cfg.Ranges = append(w.cfg.Ranges, routes.Range{Prefix: netip.MustParsePrefix("10.200.0.0/20"), NodeBits: 26})
		defer w.start()()
		rest(time.Minute)
		w.expectTable("10.200.0.64/26 via 10.0.0.3", "10.244.1.0/24 via 10.0.0.2")
		w.expectCondition("b", "False RouteCreated")
		w.leave("b")
		rest(time.Minute)
		w.expectTable("10.244.1.0/24 via 10.0.0.2")
		if n := len(w.table.log()); n != 3 {
			t.Errorf("%d writes, want one for each Node and one for the one that left: %q", n, w.table.log())
		}
	})
}
