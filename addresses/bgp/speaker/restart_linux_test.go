package speaker_test

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/addresses/bgp"
	"github.com/underlay-ccm/underlay/test/testenv/process"
)

// routeChanges records changes of routes in the router's kernel.
func (f *fabric) routeChanges() (mentions func(netip.Addr) []string) {
	f.t.Helper()
	dir := f.t.TempDir()
	p, err := process.Start(process.Command{Name: "changes", Path: "nsenter", Dir: dir, Args: []string{"--net=" + f.router.Path(), "--", "ip", "monitor", "route"}})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(p.Kill)
	read := func() string {
		content, err := os.ReadFile(p.Log)
		if err != nil {
			f.t.Fatal(err)
		}
		return string(content)
	}
	// Its output is empty until a route changes.
	f.until(5*time.Second, "changes are recorded", func() bool {
		f.router.Run("ip", "route", "replace", "192.0.2.254", "dev", "segment")
		f.router.Run("ip", "route", "del", "192.0.2.254")
		return read() != ""
	})
	return func(a netip.Addr) (lines []string) {
		for line := range strings.Lines(read()) {
			if strings.Contains(line, a.String()) {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
		return lines
	}
}

func restarting(w wanted, by time.Duration) wanted {
	w.RestartTime = by
	return w
}

// Replacing a speaker removes no routes, whether it shuts down or dies; prefixes that its successor
// doesn't announce are withdrawn when that has sent all others.
func TestASpeakerIsReplaced(t *testing.T) {
	for name, end := range map[string]func(*speaking){
		"in order": func(s *speaking) { s.send(order{Close: true}); s.kill() },
		"killed":   func(s *speaking) { s.kill() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFabric(t)
			f.route(session{node: "a", family: 4}, session{node: "a", family: 6}, session{node: "b", family: 4})
			gone := netip.MustParseAddr("203.0.113.99")
			w := restarting(of("a", hosts(service4, service6, gone), router4, router6), 30*time.Second)
			first, b := speak(t, f.nodes["a"]), speak(t, f.nodes["b"])
			first.set(w)
			b.set(of("b", hosts(service4), router4))
			f.until(soon, "all routes", func() bool {
				return f.hops(bgp.Host(service4)) == 2 && f.hops(bgp.Host(service6)) == 1 &&
					f.hops(bgp.Host(gone)) == 1
			})
			mentions := f.routeChanges()
			end(first)
			f.until(soon, "the router notices", func() bool {
				return !strings.Contains(f.birdc("show", "protocols", "a4"), "Established")
			})
			second := speak(t, f.nodes["a"])
			w.Prefixes = hosts(service4, service6)
			second.set(w)
			f.until(soon, "what is not announced any more goes", func() bool { return f.hops(bgp.Host(gone)) == 0 })
			f.until(soon, "both sessions", func() bool { return second.state("router4").Established && second.state("router6").Established })
			f.until(soon, "the router has heard everything", func() bool { return !strings.Contains(f.birdc("show", "route", "all"), "stale") })
			for _, a := range []netip.Addr{service4, service6} {
				if lines := mentions(a); len(lines) > 0 {
					t.Errorf("the route of %s changed:\n%s", a, strings.Join(lines, "\n"))
				}
			}
		})
	}
}

// Routers keep a speaker's routes for the restart time that it requested, and no longer.
func TestASpeakerStaysAway(t *testing.T) {
	t.Parallel()
	f := newFabric(t)
	f.route(session{node: "a", family: 4})
	a := speak(t, f.nodes["a"])
	const asked = 4 * time.Second
	a.set(restarting(of("a", hosts(service4), router4), asked))
	f.until(soon, "the route", func() bool { return f.hops(bgp.Host(service4)) == 1 })
	a.kill()
	if took := f.until(soon, "the route's end", func() bool { return f.hops(bgp.Host(service4)) == 0 }); took < asked-time.Second || took > asked+3*time.Second {
		t.Errorf("the route went after %s, want about %s", took, asked)
	}
}

// The routes of a dead machine are removed after the hold time, although its speaker requested a
// longer restart time; with BFD much sooner.
func TestAMachineDies(t *testing.T) {
	short := func(p *bgp.Peer) { p.HoldTime = 3 * time.Second }
	bfd := func(p *bgp.Peer) { p.HoldTime, p.BFD = 90*time.Second, true }
	for name, c := range map[string]struct {
		service, router netip.Addr
		peer            func(*bgp.Peer)
		options         string
		restart, within time.Duration
	}{
		"by hold time":                        {service4, router4, short, "", 0, 5 * time.Second},
		"by hold time, with graceful restart": {service4, router4, short, "", time.Minute, 5 * time.Second},
		"by BFD":                              {service4, router4, bfd, "bfd on;", time.Minute, 2 * time.Second},
		"by BFD over IPv6":                    {service6, router6, bfd, "bfd on;", time.Minute, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFabric(t)
			family, peer := 4, "router4"
			if c.router.Is6() {
				family, peer = 6, "router6"
			}
			f.route(session{node: "a", family: family, options: c.options}, session{node: "b", family: family, options: c.options})
			a, b := speak(t, f.nodes["a"]), speak(t, f.nodes["b"])
			for node, s := range map[string]*speaking{"a": a, "b": b} {
				w := restarting(of(node, hosts(c.service), c.router), c.restart)
				c.peer(&w.Peers[0].Peer)
				s.set(w)
			}
			f.until(soon, "two next hops", func() bool { return f.hops(bgp.Host(c.service)) == 2 })
			if c.options != "" {
				f.until(soon, "BFD", func() bool {
					return strings.Count(f.birdc("show", "bfd", "sessions"), "Up") == 2
				})
			}
			// The link fails without a notification.
			f.router.Run("ip", "link", "set", "to-a", "nomaster")
			took := f.until(soon, "the route without a", func() bool { return f.hops(bgp.Host(c.service)) == 1 })
			t.Logf("gone after %s", took)
			if took > c.within {
				t.Errorf("the route had a dead machine for %s, want at most %s", took, c.within)
			}
			f.until(soon, "a notices too", func() bool { return !a.state(peer).Established })
			f.router.Run("ip", "link", "set", "to-a", "master", "segment")
			f.until(2*soon, "a is back", func() bool { return f.hops(bgp.Host(c.service)) == 2 })
		})
	}
}

// This is the largest number of prefixes of a node.
func TestManyPrefixes(t *testing.T) {
	t.Parallel()
	f := newFabric(t)
	f.route(session{node: "a", family: 4}, session{node: "a", family: 6})
	a := speak(t, f.nodes["a"])
	before := a.send(order{}).RSS
	w := of("a", nil, router4, router6)
	for i := range 250 {
		w.Prefixes = append(w.Prefixes, netip.MustParsePrefix(fmt.Sprintf("203.0.113.%d/32", i)))
	}
	slices.Reverse(w.Prefixes)
	a.set(w)
	f.until(soon, "all of them", func() bool {
		return strings.Count(f.router.Run("ip", "route", "show", "proto", "bird"), "203.0.113.") == 250
	})
	t.Logf("memory: %s before, %s with 250 prefixes", before, a.send(order{}).RSS)
	w.Prefixes = w.Prefixes[:1]
	a.set(w)
	f.until(soon, "one of them", func() bool {
		return strings.Count(f.router.Run("ip", "route", "show", "proto", "bird"), "203.0.113.") == 1
	})
}
