package agent

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/internal/kube"
)

// localText returns a ledger with one address of a Service with policy Local.
func localText(address, holder string, epoch int) string {
	return strings.ReplaceAll(ledgerText(fmt.Sprintf("%s %s %d held", address, holder, epoch)),
		`"name":"s"`, `"name":"s","local":true,"check":30999`)
}

// kube-proxy opens the health check node port of a Service only in the Service's families.
func TestAPortOfAServiceIsProbedInItsFamilies(t *testing.T) {
	node := func(name string, ips ...string) *kube.Node {
		n := &kube.Node{Name: name, Ready: true}
		for _, ip := range ips {
			n.InternalIPs = append(n.InternalIPs, netip.MustParseAddr(ip))
		}
		return n
	}
	self := node("a", "10.0.0.1", "fd00::1")
	for _, c := range []struct {
		address string
		holder  *kube.Node
		want    []string
	}{
		{"192.0.2.1", node("b", "10.0.0.2", "fd00::2"), []string{"10.0.0.2:30999"}},
		{"192.0.2.1", node("b", "fd00::2", "10.0.0.2"), []string{"10.0.0.2:30999"}},
		{"2001:db8::1", node("b", "10.0.0.2", "fd00::2", "fd00::3"), []string{"[fd00::2]:30999"}},
		{"2001:db8::1", node("b", "10.0.0.2"), nil},
	} {
		l, err := addresses.ParseLedger([]byte(localText(c.address, "b", 1)))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, at := range watched(l, "a", []*kube.Node{self, c.holder}, nil)[addresses.Endpoint{Node: "b", Port: 30999}] {
			got = append(got, at.String())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s at %v: asked at %q, want %q", c.address, c.holder.InternalIPs, got, c.want)
		}
	}
}

// The address of a Service with policy Local is taken when the local kube-proxy reports that its
// rules exist: until then the former holder serves. It is taken after a timeout in any case, and at
// once if kube-proxy is unreachable.
func TestALocalAddressWaitsForKubeProxy(t *testing.T) {
	const port = "127.0.0.1:30999"
	for name, c := range map[string]struct {
		result  func(p *proxies)
		waits   time.Duration
		resumed bool
	}{
		"it serves":          {result: func(*proxies) {}},
		"it can't be asked":  {result: func(p *proxies) { p.refuses(port, true); p.refuses("10.0.0.1:30999", true) }},
		"it serves later":    {result: func(p *proxies) { p.lag(port, 2*time.Second) }, waits: 2 * time.Second},
		"it never serves":    {result: func(p *proxies) { p.lag(port, time.Hour) }, waits: restartWithin},
		"it was held before": {result: func(p *proxies) { p.lag(port, time.Hour) }, resumed: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine(t)
				holder := "b"
				if c.resumed {
					holder = "a"
				}
				m.api.put("one", localText("192.0.2.1", holder, 1))
				m.start()
				defer func() { m.stop() }()
				m.after(time.Second)
				if c.resumed {
					m.stop()
					m.start()
				}
				c.result(m.proxies)
				holds := func() bool {
					log := m.mover.log()
					return strings.Contains(log[len(log)-1], "hold [{192.0.2.1")
				}
				m.api.put("one", localText("192.0.2.1", "a", 2))
				if c.waits > 0 {
					m.after(c.waits - time.Millisecond)
					if holds() {
						t.Error("it is held although kube-proxy does not serve it yet")
					}
					if r := m.report(); r.Unfit != "" || len(r.Silent) > 0 {
						t.Errorf("the report is %+v", r)
					}
					if !slices.Contains(m.agent.Held.All(), netip.MustParseAddr("192.0.2.1")) {
						t.Error("the packet filter has to know it before packets come")
					}
				}
				m.after(2 * checkEvery)
				if !holds() {
					t.Errorf("%s later it is not held", c.waits)
				}
				m.after(time.Minute)
				if !holds() {
					t.Error("it is given up again")
				}
			})
		})
	}
}

// The reported addresses of one Node can't keep another node from holding an assigned address.
func TestOneKubeletKeepsNoAddressFromOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		m.node("d", "192.0.2.3", true)
		m.api.put("one", ledgerText("192.0.2.3 b 1 held"))
		m.start()
		defer m.stop()
		m.after(time.Second)
		m.api.put("one", ledgerText("192.0.2.3 a 2 held"))
		m.after(time.Minute)
		if r := m.report(); len(r.Held) != 1 {
			t.Errorf("after a minute it is not held: %+v", r)
		}
		l, err := addresses.ParseLedger([]byte(ledgerText("192.0.2.3 b 3 held")))
		if err != nil {
			t.Fatal(err)
		}
		node := &kube.Node{InternalIPs: []netip.Addr{netip.MustParseAddr("192.0.2.3")}}
		if got := Passing(l, []addresses.Pool{pool(t, "192.0.2.0/24")}, []*kube.Node{node}); len(got) != 1 {
			t.Errorf("refused here while a provider leads it here: %v", got)
		}
	})
}

// Packets to ports of a Service with endpoints that kube-proxy does not redirect yet are dropped:
// the packet filter gets these ports, and no other Service's.
func TestServedPortsArePassedToTheFilter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		text := ledgerText("192.0.2.1 a 1 held")
		m.api.put("one", strings.ReplaceAll(text, `"name":"s"`, `"name":"s","served":[53,80]`))
		m.start()
		defer m.stop()
		m.after(0)
		if got, want := fmt.Sprint(m.agent.Held.Ports()), "[192.0.2.1:53 192.0.2.1:80]"; got != want {
			t.Errorf("told are %s, want %s", got, want)
		}
		m.api.put("one", text)
		m.after(0)
		if got := m.agent.Held.Ports(); len(got) > 0 || len(m.agent.Held.All()) != 1 {
			t.Errorf("without endpoints told are %v of %v, want none of one", got, m.agent.Held.All())
		}
	})
}
